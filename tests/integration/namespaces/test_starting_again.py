"""A process that comes after one that was killed: it finds what that one left, wherever it ran, and nobody but the first sandbox waits
for it."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import sandpool
from sandpool.base.errors import NodeError
from sandpool.node.runtimes.contract import SandboxPlan
from sandpool.node.runtimes.namespaces import runtime_host as runtime_host
from sandpool.node.runtimes.namespaces.cgroup_hierarchy import parse_mounts
from sandpool.node.runtimes.namespaces.cgroup_manager import CgroupJournal, CgroupManager
from sandpool.node.runtimes.namespaces.runtime import NamespacesRuntime
from support.node.sandbox_scenarios import processes_with
from support.node.sandboxes import opened, until

TESTS = str(Path(__file__).parents[2])
SOURCE = str(Path(sandpool.__file__).parents[1])

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root makes control groups anywhere")


@pytest.fixture
def elsewhere() -> Iterator[list[Path]]:
    """A control group on each hierarchy, beside the one that this process is in."""
    made = []
    for hierarchy in parse_mounts(Path("/proc/self/mountinfo").read_text()):
        group = Path(hierarchy.directory) / f"sandpool-test-{os.getpid()}"
        try:
            group.mkdir()
        except OSError:
            continue
        if {"cpuset"} & hierarchy.controllers:
            group.rmdir()  # nobody can join it as it is
            continue
        made.append(group)
    yield made
    for group in made:
        for inner in sorted((path for path in group.rglob("*") if path.is_dir()), reverse=True):
            inner.rmdir()
        group.rmdir()


def victim(folder: Path, installation: str, mark: str, groups: list[Path]) -> subprocess.Popen[bytes]:
    """Runs sandboxes as a member of these groups, until it is killed."""
    join = "".join(f"echo $$ > {group}/cgroup.procs; " for group in groups)
    argv = [sys.executable, "-m", "support.node.sandbox_victim", str(folder), installation, mark]
    env = {"PYTHONPATH": f"{SOURCE}:{TESTS}", "PATH": os.environ["PATH"]}
    return subprocess.Popen(["sh", "-c", f'{join}exec "$@"', "sh", *argv], env=env, stdout=subprocess.PIPE)


@pytest.mark.root
@as_root
async def test_groups_of_one_that_was_killed_in_another_group_are_taken_away(
    tmp_path: Path, elsewhere: list[Path]
) -> None:
    if not elsewhere:
        pytest.skip("no control group can be made here")
    installation, mark = f"else{os.getpid()}", f"8{os.getpid()}"
    with victim(tmp_path / "victim", installation, mark, elsewhere) as process:
        assert process.stdout is not None
        try:
            server = process.stdout.readline()
            assert server
            left = [path for group in elsewhere for path in group.glob(f"sandpool-{installation}")]
            assert left, "it made its groups below the one that it was in"
        finally:
            process.kill()
            process.wait()
    assert all(path.is_dir() for path in left)
    async with opened(tmp_path / "victim", installation) as bench:
        assert not any(path.exists() for path in left)
        assert all(Path(place.directory).is_dir() for place in bench.runtime.runtime_host.cgroups.places.values())
    await until(lambda: not processes_with(mark))


@pytest.mark.root
@as_root
async def test_whoever_is_still_in_such_a_group_is_ended(tmp_path: Path, elsewhere: list[Path]) -> None:
    """Also on version 1, where the kernel does not do it for us."""
    if not elsewhere:
        pytest.skip("no control group can be made here")
    groups = [group / "sandpool-mine" for group in elsewhere]
    for group in groups:
        group.mkdir()
    join = "".join(f"echo $$ > {group}/cgroup.procs; " for group in groups)
    with subprocess.Popen(["sh", "-c", f"{join}echo in; exec sleep 1000"], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"in\n"
        ending = threading.Thread(target=process.wait)  # until somebody waits for it, it is still a member
        ending.start()
        journal = CgroupJournal(tmp_path / "groups")
        journal.add(str(group) for group in groups)
        CgroupManager("sandpool-mine", journal).sweep()
        ending.join()
        assert process.returncode == -9
    assert not any(group.exists() for group in groups)
    assert journal.read() == []


@pytest.mark.root
@as_root
def test_only_groups_with_our_name_are_taken_away(tmp_path: Path, elsewhere: list[Path]) -> None:
    if not elsewhere:
        pytest.skip("no control group can be made here")
    others = [elsewhere[0] / "sandpool-theirs", tmp_path / "sandpool-mine"]
    for path in others:
        path.mkdir()
    journal = CgroupJournal(tmp_path / "groups")
    around = elsewhere[0] / "sandpool-theirs" / ".." / ".." / "sandpool-mine"
    journal.add([*map(str, others), str(around)])
    CgroupManager("sandpool-mine", journal).sweep()
    assert all(path.is_dir() for path in others)


async def test_a_group_is_written_down_before_it_is_made(tmp_path: Path) -> None:
    async with opened(tmp_path, f"wrote{os.getpid()}") as bench:
        groups = bench.runtime.runtime_host.cgroups
        assert groups.journal is not None
        assert {place.directory for place in groups.places.values()} <= set(groups.journal.read())
    (tmp_path / "blocked").mkdir()
    (tmp_path / "blocked" / runtime_host.JOURNAL).with_suffix(".new").mkdir()  # nothing can be written down
    blocked = CgroupManager(f"sandpool-wrote{os.getpid()}", CgroupJournal(tmp_path / "blocked" / runtime_host.JOURNAL))
    with pytest.raises(OSError, match="directory"):
        blocked.open(runtime_host.for_all_sandboxes())
    assert not blocked.places


async def test_nobody_but_the_first_sandbox_waits_for_what_is_laid_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow, real = threading.Event(), runtime_host.make_skeleton  # type: ignore[attr-defined]

    def make_skeleton(target: Path, *, whole: bool) -> None:
        slow.wait()
        real(target, whole=whole)

    monkeypatch.setattr(runtime_host, "make_skeleton", make_skeleton)
    runtime = NamespacesRuntime(tmp_path / "runtime", installation=f"slow{os.getpid()}")
    (tmp_path / "box").mkdir()
    try:
        await runtime.open()  # returns
        creating = asyncio.create_task(runtime.create(SandboxPlan("pod", "box", tmp_path / "box")))
        await runtime.runtime_host.living_server()  # starts meanwhile
        assert not creating.done()
        slow.set()
        await (await creating).destroy()
    finally:
        slow.set()
        await runtime.close()


async def test_what_could_not_be_laid_out_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = runtime_host.make_skeleton  # type: ignore[attr-defined]

    def full(target: Path, *, whole: bool) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(runtime_host, "make_skeleton", full)
    runtime = NamespacesRuntime(tmp_path / "runtime", installation=f"again{os.getpid()}")
    (tmp_path / "box").mkdir()
    plan = SandboxPlan("pod", "box", tmp_path / "box")
    await runtime.open()
    try:
        with pytest.raises(NodeError, match=r"cannot prepare .*: No space left on device"):
            await runtime.create(plan)
        monkeypatch.setattr(runtime_host, "make_skeleton", real)
        await (await runtime.create(plan)).destroy()
    finally:
        await runtime.close()


async def test_a_machine_that_was_tried_is_not_tried_again(tmp_path: Path) -> None:
    name = f"tried{os.getpid()}"
    first = await NamespacesRuntime(tmp_path, installation=name).probe()
    assert first.available, first.message
    cannot_start = ("/bin/false",)
    assert await NamespacesRuntime(tmp_path, installation=name, entry=cannot_start).probe() == first
    (tmp_path / "probed.json").write_text("{")
    assert not (await NamespacesRuntime(tmp_path, installation=name, entry=cannot_start).probe()).available
    assert not (tmp_path / "probed.json").exists(), "a failure is not remembered"
