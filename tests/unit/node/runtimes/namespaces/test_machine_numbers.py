"""Numbers of the whole machine that one tenant must not be able to reach."""

from __future__ import annotations

from pathlib import Path

from sandpool.node.runtimes.namespaces import sysctls
from sandpool.node.runtimes.namespaces.runtime_host import FOR_ALL, for_all_sandboxes


def settings(folder: Path, **values: str) -> Path:
    (folder / "kernel/pty").mkdir(parents=True)
    (folder / "fs").mkdir()
    (folder / "user").mkdir()
    for name, value in values.items():
        (folder / name.replace("__", "/").replace("threads_", "threads-").replace("file_", "file-")).write_text(value)
    return folder


def test_numbers_that_memory_bounds_are_lifted(tmp_path: Path) -> None:
    folder = settings(
        tmp_path, fs__file_max="2465787\n", kernel__pid_max="32768\n", kernel__threads_max="192700\n", kernel__pty__max="4096\n",
        user__max_net_namespaces="96350\n", user__max_user_namespaces="0\n",
    )  # fmt: skip
    for _ in range(2):
        sysctls.raise_limits(folder)
        assert int((folder / "fs/file-max").read_text()) == 2**63 - 1
        assert int((folder / "kernel/pid_max").read_text()) == sysctls.process_limit(folder) == 1 << 22
        assert int((folder / "kernel/pty/max").read_text()) == 1 << 20
        assert int((folder / "user/max_net_namespaces").read_text()) == 2**31 - 1
    assert (folder / "user/max_user_namespaces").read_text() == "0\n", "an operator may have closed these"


def test_what_is_odd_or_larger_is_left_alone(tmp_path: Path) -> None:
    folder = settings(tmp_path, fs__file_max="odd", kernel__threads_max="9000000")
    sysctls.raise_limits(folder)
    assert (folder / "fs/file-max").read_text() == "odd"
    assert (folder / "kernel/threads-max").read_text() == "9000000"
    assert not (folder / "kernel/pid_max").exists()


def test_the_smaller_number_of_processes_counts(tmp_path: Path) -> None:
    """A machine may have numbers for four million, and room for a few thousand: then nobody else could start any, not even root."""
    folder = settings(tmp_path, kernel__pid_max="4194304", kernel__threads_max="192700")
    assert sysctls.process_limit(folder) == 192700
    assert sysctls.process_limit(tmp_path / "none") == 32768
    assert for_all_sandboxes().pids == int(sysctls.process_limit() * FOR_ALL)
