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
from sandpool.local.backends.namespaces.container import NamespaceContainer
from support.sandbox_scenarios import processes_with
from support.sandboxes import opened, script_in, until

TESTS = str(Path(__file__).parents[2])
SOURCE = str(Path(sandpool.__file__).parents[1])


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
async def test_nothing_outlives_the_main_process(how: int, tmp_path: Path) -> None:
    mark = f"7{os.getpid()}{how}"
    argv = [sys.executable, "-m", "support.sandbox_victim", str(tmp_path / "victim"), f"victim{os.getpid()}", mark]
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
        for place in bench.runtime._nursery.cgroups.places.values():
            assert not [path for path in Path(place.folder).iterdir() if path.is_dir()]


ENTRY = f"""
import sys
sys.path[:0] = [{SOURCE!r}]
import array, os, socket
from sandpool.local.backends.namespaces.forked.forkserver import main

def boxd(channel, environment, cwd):
    while True:
        data, rights, _, _ = channel.recvmsg(9, 99)
        if not data:
            return
        for _, _, given in rights:
            with socket.socket(fileno=array.array("i", given)[0]) as connection:
                asked = connection.recv(99)
                if asked == b"die":
                    os._exit(1)
                answer = [os.getpid(), environment["WORD"], cwd, sorted(map(int, os.listdir("/proc/self/fd"))), os.getuid()]
                connection.sendall(repr(answer).encode())

main(boxd)
"""


async def test_boxd_is_started_inside_when_it_is_first_asked_for(tmp_path: Path) -> None:
    loop = asyncio.get_running_loop()

    async def ask(container: NamespaceContainer, what: bytes) -> bytes:
        with await container.connect() as connection:
            await loop.sock_sendall(connection, what)
            return await loop.sock_recv(connection, 999)

    entry = (sys.executable, "-I", "-S", "-c", ENTRY)
    async with (
        opened(tmp_path, f"boxd{os.getpid()}", entry) as bench,
        bench.container(env={"WORD": "here"}, cwd="/tmp", user="user") as container,
    ):
        first = await ask(container, b"?")
        pid, word, cwd, files, uid = literal_eval(first.decode())
        assert (word, cwd, uid) == ("here", "/tmp", 1000)
        assert len(files) <= 6  # stdio, its channel, the connection, and the listing itself
        assert await ask(container, b"?") == first
        assert (
            await script_in(container, f"cat /proc/{pid}/environ /proc/{pid}/mem 2>/dev/null | wc -c")
        ).text == "0\n"
        assert await ask(container, b"die") == b""
        assert literal_eval((await ask(container, b"?")).decode())[0] != pid
