"""Nothing outlives the main process, however it dies; and boxd, which the entry of the fork-server brings along."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from ast import literal_eval
from pathlib import Path

import pytest

import sandpool
from sandpool.base.errors import NodeError
from sandpool.node.runtimes.contract import Stdio
from sandpool.node.runtimes.namespaces.container import NamespaceContainer
from support.node.sandbox_scenarios import processes_with
from support.node.sandboxes import opened, script_in, shell, until

TESTS = str(Path(__file__).parents[2])
SOURCE = str(Path(sandpool.__file__).parents[1])


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
async def test_nothing_outlives_the_main_process(how: int, tmp_path: Path) -> None:
    mark = f"7{os.getpid()}{how}"
    argv = [sys.executable, "-m", "support.node.sandbox_victim", str(tmp_path / "victim"), f"victim{os.getpid()}", mark]
    with subprocess.Popen(
        argv, env={"PYTHONPATH": f"{SOURCE}:{TESTS}", "PATH": os.environ["PATH"]}, stdout=subprocess.PIPE
    ) as victim:
        assert victim.stdout is not None
        server = int(victim.stdout.readline())
        try:
            await until(lambda: len(processes_with(mark)) == 9)  # two in each container, and the victim
        finally:
            victim.send_signal(how)
            victim.wait()
    await until(lambda: not processes_with(mark) and not Path(f"/proc/{server}/exe").exists())
    async with opened(tmp_path / "victim", f"victim{os.getpid()}") as bench:  # and the next one takes the rest away
        for place in bench.runtime.runtime_host.cgroups.places.values():
            assert not [path for path in Path(place.directory).iterdir() if path.is_dir()]


ENTRY = f"""
import sys
sys.path[:0] = [{SOURCE!r}]
import array, os, socket
from sandpool.node.runtimes.namespaces.forked.forkserver import main

def counts(memory):
    if memory is None:
        return ""
    try:
        os.close(os.open(f"/proc/self/fd/{{memory}}", os.O_RDWR))
        return "it can be written to"
    except OSError:
        return os.pread(memory, 999, 0).decode()

def boxd(channel, environment, cwd, memory):
    while True:
        data, rights, _, _ = channel.recvmsg(9, 99)
        if not data:
            return
        for _, _, given in rights:
            with socket.socket(fileno=array.array("i", given)[0]) as connection:
                asked = connection.recv(99)
                if asked == b"die":
                    os._exit(1)
                files = sorted(map(int, os.listdir("/proc/self/fd")))
                answer = [os.getpid(), environment["WORD"], cwd, files, os.getuid(), counts(memory)]
                connection.sendall(repr(answer).encode())

main(boxd)
"""


WITH_BOXD = (sys.executable, "-I", "-S", "-c", ENTRY)


async def ask(container: NamespaceContainer, what: bytes) -> bytes:
    loop = asyncio.get_running_loop()
    with await container.connect() as connection:
        await loop.sock_sendall(connection, what)
        return await loop.sock_recv(connection, 999)


@pytest.mark.parametrize("served", [False, True])
async def test_boxd_is_inside_when_it_is_first_asked_for(tmp_path: Path, served: bool) -> None:
    async with (
        opened(tmp_path, f"boxd{os.getpid()}", WITH_BOXD) as bench,
        bench.container(env={"WORD": "here"}, cwd="/tmp", user="user", served=served) as container,
    ):
        first = await ask(container, b"?")
        pid, word, cwd, files, uid, counted = literal_eval(first.decode())
        assert (word, cwd, uid) == ("here", "/tmp", 1000)
        assert len(files) <= 7  # stdio, its channel, the count of memory, the connection, and the listing itself
        assert counted == "" or "oom_kill " in counted
        assert await ask(container, b"?") == first
        assert (
            await script_in(container, f"cat /proc/{pid}/environ /proc/{pid}/mem 2>/dev/null | wc -c")
        ).text == "0\n"
        assert await ask(container, b"die") == b""
        assert literal_eval((await ask(container, b"?")).decode())[0] != pid


OTHERS = "for each in /proc/[0-9]*; do p=${each#/proc/}; [ $p -gt 1 ] && [ $p != $$ ] && echo $p; done"


async def test_boxd_that_waits_is_one_process_which_nobody_inside_can_look_into(tmp_path: Path) -> None:
    async with opened(tmp_path, f"boxd{os.getpid()}", WITH_BOXD) as bench, bench.sandbox() as sandbox:
        plan = shell("exec sleep 1000", env={"WORD": "secret"}, served=True)
        container = await sandbox.start(plan, Stdio())
        _, *waiting = await _others(container)
        assert (await sandbox.stats()).processes == 1, "boxd is nobody's yet"
        look = "for p in %s; do cat /proc/$p/environ /proc/$p/mem; ls /proc/$p/fd; ls /proc/$p/cwd/; done 2>/dev/null | wc -c"
        others = " ".join(map(str, waiting))
        assert (await script_in(container, look % others)).text == "0\n"
        assert literal_eval((await ask(container, b"?")).decode())[0] in waiting, "it is the one that waited"
        assert (await sandbox.stats()).processes == 2


async def test_boxd_that_was_killed_while_it_waited_is_started_anew(tmp_path: Path) -> None:
    async with opened(tmp_path, f"boxd{os.getpid()}", WITH_BOXD) as bench, bench.sandbox() as sandbox:
        container = await sandbox.start(shell("exec sleep 1000", env={"WORD": "here"}, served=True), Stdio())
        waiting = (await _others(container))[1:]
        await script_in(
            container, f"for p in {' '.join(map(str, waiting))}; do kill -9 $p; done 2>/dev/null; sleep 0.2"
        )
        assert (await sandbox.stats()).processes == 1, "the command, which did not end"
        pid, word, *_ = literal_eval((await ask(container, b"?")).decode())
        assert word == "here"
        assert pid not in waiting


@pytest.mark.parametrize("served", [False, True])
async def test_boxd_that_was_stopped_holds_nobody_up(tmp_path: Path, served: bool) -> None:
    async with (
        asyncio.timeout(30),
        opened(tmp_path, f"boxd{os.getpid()}", WITH_BOXD) as bench,
        bench.container("exec sleep 1000", env={"WORD": "here"}, served=served) as container,
    ):
        pid = literal_eval((await ask(container, b"?")).decode())[0]
        await script_in(container, f"kill -STOP {pid}")
        with pytest.raises(NodeError, match="takes no connections"):
            await _connect_often(container)
        assert (await script_in(container, "echo still here")).text == "still here\n"


async def _connect_often(container: NamespaceContainer) -> None:
    for _ in range(5000):
        (await container.connect()).close()


async def _others(container: NamespaceContainer) -> list[int]:
    """The command, boxd and whoever looked, lowest first; once boxd is there."""
    async with asyncio.timeout(30):
        while True:
            found = sorted(int(pid) for pid in (await script_in(container, OTHERS)).text.split())
            if len(found) >= 2:
                return found
