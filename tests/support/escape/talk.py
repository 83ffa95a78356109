"""Talking to a hostile program: it is sent into the sandbox as text, and tries what it is told, one attempt at a time."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from sandpool.model.metadata import Uid
from sandpool.node.backend import Command
from support.escape import hostile, in_files, in_kernel, in_network, in_own_kernel, in_pools, in_processes, in_secrets
from support.escape.world import World
from support.node.streams import TestStreams

PROGRAMS = (
    hostile,
    in_files,
    in_processes,
    in_secrets,
    in_network,
    in_kernel,
    in_pools,
    in_own_kernel,
)
START = """
import json, os, sys, types
files = [f"{name} -> {os.readlink(f'/proc/self/fd/{name}')}" for name in os.listdir("/proc/self/fd") if name not in ("0", "1", "2")
         and os.path.exists(f"/proc/self/fd/{name}")]
given = json.loads(sys.stdin.readline())
sys.modules["support"] = types.ModuleType("support")
sys.modules["support.escape"] = types.ModuleType("support.escape")
for name, source in given["sources"].items():
    module = types.ModuleType(name)
    sys.modules[name] = module
    exec(compile(source, name, "exec"), module.__dict__)
sys.modules["support.escape.hostile"].main(given["targets"], files)
"""


class Conversation:
    """A hostile program that does as it is told, one attempt at a time."""

    def __init__(self, world: World, uid: Uid, argv: tuple[str, ...]) -> None:
        self._streams = TestStreams(None)
        self._read = 0
        self._task = asyncio.create_task(world.backend.exec(uid, "main", Command(argv), self._streams))

    def feed(self, text: str) -> None:
        self._streams.feed(f"{text}\n".encode())

    async def line(self, text: str) -> str:
        self.feed(text)
        return await self.said()

    async def said(self) -> str:
        """The next line."""
        waiting = asyncio.create_task(self._streams.until(lambda said: b"\n" in said[self._read :]))
        await asyncio.wait({waiting, self._task}, return_when=asyncio.FIRST_COMPLETED)
        if not waiting.done():
            waiting.cancel()
            raise AssertionError(f"the program ended: {bytes(self._streams.out[2]).decode(errors='replace')}")
        said = self._streams.text[self._read :].split(b"\n", 1)[0]
        self._read += len(said) + 1
        return said.decode()

    async def close(self) -> str:
        """What else it says."""
        self._streams.end()
        await asyncio.wait_for(self._task, 30)
        return self._streams.text[self._read :].decode(errors="replace")


def sources() -> dict[str, str]:
    return {module.__name__: Path(module.__file__ or "").read_text() for module in PROGRAMS}


@asynccontextmanager
async def conversation(world: World, uid: Uid) -> AsyncIterator[Conversation]:
    talk = Conversation(world, uid, ("python3", "-c", START))
    assert await talk.line(json.dumps({"sources": sources(), "targets": world.targets()})) == "ready"
    try:
        yield talk
    finally:
        await talk.close()
