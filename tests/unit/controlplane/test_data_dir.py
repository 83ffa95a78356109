"""The data directory: private, versioned, held by one process at a time."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from sandpool.controlplane.data_dir import DataDir, DataDirError, DataDirInUse
from sandpool.kube.local_discovery import Running

HOLD = """
import sys, pathlib, time
from sandpool.controlplane.data_dir import DataDir
directory = DataDir(pathlib.Path(sys.argv[1])); directory.prepare(); lock = directory.take()
print("held", flush=True); time.sleep(60)
"""


@pytest.fixture
def directory(tmp_path: Path) -> DataDir:
    return DataDir(tmp_path / "data")


def test_a_fresh_directory_is_private_and_has_a_version(directory: DataDir) -> None:
    directory.prepare()
    assert directory.root.stat().st_mode & 0o777 == 0o700
    assert directory.format.read_text() == "1\n"


def test_nobody_else_can_write_into_one_that_was_there(directory: DataDir) -> None:
    directory.root.mkdir()
    directory.root.chmod(0o777)
    directory.prepare()
    assert directory.root.stat().st_mode & 0o777 == 0o755


@pytest.mark.root
def test_one_that_another_user_could_change_at_will_is_refused(directory: DataDir) -> None:
    directory.root.mkdir()
    os.chown(directory.root, 65534, 65534)
    with pytest.raises(DataDirError, match=r"belongs to another user.*--data-dir"):
        directory.prepare()
    assert not list(directory.root.iterdir())


def test_a_newer_format_is_refused_and_left_alone(directory: DataDir) -> None:
    directory.prepare()
    directory.format.write_text("99\n")
    with pytest.raises(DataDirError, match=r"has format 99, this sandpool reads format 1\. Use the release"):
        directory.prepare()
    assert directory.format.read_text() == "99\n"


def test_a_directory_of_somebody_else_is_never_taken_over(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(DataDirError, match="is not empty and not a data directory"):
        DataDir(tmp_path).prepare()
    assert [entry.name for entry in tmp_path.iterdir()] == ["thesis.tex"]


def test_a_path_that_cannot_be_made_names_itself_and_the_flag(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(DataDirError, match=r"file/data cannot be used: Not a directory\. Choose another"):
        DataDir(tmp_path / "file" / "data").prepare()


def test_a_second_taker_learns_who_holds_it(directory: DataDir) -> None:
    child = subprocess.Popen([sys.executable, "-c", HOLD, str(directory.root)], stdout=subprocess.PIPE)
    assert child.stdout is not None
    with child.stdout:
        assert child.stdout.readline() == b"held\n"
        assert directory.holder() == child.pid
        with pytest.raises(DataDirInUse, match=f"in use by process {child.pid}"):
            directory.take()
        os.kill(child.pid, signal.SIGKILL)
        child.wait()
    assert directory.holder() is None  # the kernel let go of it, nothing stale stays
    directory.take().release()


def test_asking_who_holds_it_does_not_let_go_of_it(directory: DataDir) -> None:
    directory.prepare()
    lock = directory.take()
    assert directory.holder() == os.getpid()
    assert directory.holder() == os.getpid()
    lock.release()
    assert directory.holder() is None


def test_what_runs_is_told_only_while_it_runs(directory: DataDir) -> None:
    directory.prepare()
    lock = directory.take()
    assert directory.read_running() is None
    running = Running(pid=1, api="https://x", kubeconfig="k", data_dir="d", version="v", started="now")
    lock.publish(running)
    assert directory.read_running() == running
    lock.release()
    assert directory.read_running() is None


def test_a_start_that_was_cut_off_while_it_made_the_directory_does_not_spoil_it(directory: DataDir) -> None:
    directory.root.mkdir()
    (directory.root / "format.123.new").write_text("")
    directory.prepare()
    assert directory.format.read_text() == "1\n"


def test_a_directory_that_another_start_has_just_made_is_not_foreign(
    directory: DataDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other one came between our question for the version and our look at the names."""
    directory.root.mkdir()
    look = Path.iterdir

    def late(path: Path) -> object:
        monkeypatch.undo()
        directory.prepare()
        directory.store.write_text("")
        return look(path)

    monkeypatch.setattr(Path, "iterdir", late)
    directory.prepare()
    assert directory.format.read_text() == "1\n"
