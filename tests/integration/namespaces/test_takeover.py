"""Sandboxes outlive the process that made them, and the next one takes them over."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import sandpool
from sandpool.node.runtimes.contract import FoundSandbox
from sandpool.node.runtimes.namespaces.runtime_host import shims_of
from sandpool.node.runtimes.namespaces.sandbox import NamespaceSandbox
from support.node.sandboxes import Bench, opened, script_in, until

TESTS = str(Path(__file__).parents[2])
SOURCE = str(Path(sandpool.__file__).parents[1])


@contextmanager
def left_running(folder: Path, name: str) -> Iterator[tuple[int, int]]:
    """The pids of the shim and of a container's init, of a sandbox whose process was killed. Whatever a test does, it is ended."""
    argv = [sys.executable, "-m", "support.node.lasting_victim", str(folder), name]
    with subprocess.Popen(
        argv, env={"PYTHONPATH": f"{SOURCE}:{TESTS}", "PATH": os.environ["PATH"]}, stdout=subprocess.PIPE
    ) as victim:
        assert victim.stdout is not None
        try:
            shim, init = map(int, victim.stdout.readline().split())
        finally:
            victim.kill()
    try:
        yield shim, init
    finally:
        shims_of(folder / "runtime").end_all()


async def taken(bench: Bench) -> FoundSandbox[NamespaceSandbox]:
    (found,) = await bench.runtime.find()
    return found


def children(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/task/{pid}/children").read_text().split()


async def lines(reads: int, least: int) -> list[int]:
    os.set_blocking(reads, False)
    text = b""
    async with asyncio.timeout(30):
        while text.count(b"\n") < least:
            try:
                text += os.read(reads, 1 << 16)
            except BlockingIOError:
                await asyncio.sleep(0.01)
    return [int(line) for line in text.rpartition(b"\n")[0].split()]


async def test_a_sandbox_goes_on_without_the_process_that_made_it(tmp_path: Path) -> None:
    name = f"last{os.getpid()}"
    with left_running(tmp_path, name) as (shim, init):
        async with opened(tmp_path, name, lasting=True) as bench:
            found = await taken(bench)
            assert (found.plan.id, found.plan.tenant, found.notes) == ("one", "team", {"pod": {"name": "last"}})
            assert found.sandbox.shim is not None
            assert found.sandbox.shim.pid == shim
            assert set(found.containers) == {("counting", 0), ("short", 2)}
            await until(lambda: len(children(shim)) == 2)  # the one that was being started is ended
            counting = found.containers["counting", 0]
            assert counting.container.pid == init  # type: ignore[attr-defined]
            counted = await lines(counting.files[0], 50)
            assert counted == list(range(1, len(counted) + 1)), "nothing is lost"
            assert (await script_in(counting.container, "echo $HOSTNAME")).text == "box\n"  # type: ignore[arg-type]
            short = found.containers["short", 2]
            os.write(short.files[0], b"\n")
            assert (await short.container.ended).code == 3
            for each in found.containers.values():
                for file in each.files:
                    os.close(file)
            if (egress := found.sandbox.take_egress()) is not None:
                egress.close()
            await found.sandbox.destroy()
            await until(lambda: not Path(f"/proc/{shim}").exists())
            assert not shims_of(tmp_path / "runtime").sandboxes()
            (tmp_path / "one").rmdir()  # fails if anything is left


async def test_how_a_container_ended_meanwhile_is_known(tmp_path: Path) -> None:
    name = f"last{os.getpid()}"
    with left_running(tmp_path, name) as (_, init):
        os.kill(init, signal.SIGKILL)
        async with opened(tmp_path, name, lasting=True) as bench:
            found = await taken(bench)
            assert (await found.containers["counting", 0].container.ended).code == 137
            assert not found.containers["short", 2].container.ended.done()
            for each in found.containers.values():
                for file in each.files:
                    os.close(file)


async def test_a_shim_that_ended_meanwhile_leaves_nothing(tmp_path: Path) -> None:
    name = f"last{os.getpid()}"
    with left_running(tmp_path, name) as (shim, init):
        os.kill(shim, signal.SIGKILL)
        await until(lambda: not Path(f"/proc/{init}/exe").exists())
        async with opened(tmp_path, name, lasting=True) as bench:
            assert not await bench.runtime.find()
            for place in bench.runtime.runtime_host.cgroups.places.values():
                assert not [path for path in Path(place.directory).iterdir() if path.is_dir()]
        assert not shims_of(tmp_path / "runtime").sandboxes()


async def test_a_runtime_that_takes_nothing_over_ends_what_it_finds(tmp_path: Path) -> None:
    name = f"last{os.getpid()}"
    with left_running(tmp_path, name) as (shim, init):
        async with opened(tmp_path, name) as bench:
            assert not await bench.runtime.find()
            assert not Path(f"/proc/{init}/exe").exists()
            assert not Path(f"/proc/{shim}/exe").exists()
