"""Runs attempts and scenarios on one backend as whoever starts this, and prints what became of each as a line of JSON.

A process of its own is the main process here: the secret stands in its arguments and its environment, where a real one has
its own.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import traceback
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from sandpool.local.backends.base import Command
from sandpool.model.metadata import Uid
from support import escape_hostile, escape_in_files, escape_in_kernel, escape_in_network, escape_in_processes, escape_in_secrets
from support.escape_hostile import ATTEMPTS
from support.escape_world import World, a_world
from support.streams import TestStreams

PROGRAMS = (escape_hostile, escape_in_files, escape_in_processes, escape_in_secrets, escape_in_network, escape_in_kernel)
START = """
import json, os, sys, types
files = [f"{name} -> {os.readlink(f'/proc/self/fd/{name}')}" for name in os.listdir("/proc/self/fd") if name not in ("0", "1", "2")
         and os.path.exists(f"/proc/self/fd/{name}")]
given = json.loads(sys.stdin.readline())
sys.modules["support"] = types.ModuleType("support")
for name, source in given["sources"].items():
    module = types.ModuleType(name)
    sys.modules[name] = module
    exec(compile(source, name, "exec"), module.__dict__)
sys.modules["support.escape_hostile"].main(given["targets"], files)
"""


class Conversation:
    """A hostile program that does as it is told, one attempt at a time."""

    def __init__(self, world: World, uid: Uid) -> None:
        self._streams = TestStreams(None)
        self._read = 0
        self._task = asyncio.create_task(world.backend.exec(uid, "main", Command(("python3", "-c", START)), self._streams))

    async def line(self, text: str) -> str:
        self._streams.feed(f"{text}\n".encode())
        waiting = asyncio.create_task(self._streams.until(lambda said: b"\n" in said[self._read :]))
        await asyncio.wait({waiting, self._task}, return_when=asyncio.FIRST_COMPLETED)
        if not waiting.done():
            waiting.cancel()
            raise AssertionError(f"the program ended: {bytes(self._streams.out[2]).decode(errors='replace')}")
        said = self._streams.text[self._read :].split(b"\n", 1)[0]
        self._read += len(said) + 1
        return said.decode()

    async def close(self) -> None:
        self._streams.end()
        await asyncio.wait_for(self._task, 30)


@asynccontextmanager
async def conversation(world: World, uid: Uid) -> AsyncIterator[Conversation]:
    sources = {module.__name__: Path(module.__file__ or "").read_text() for module in PROGRAMS}
    talk = Conversation(world, uid)
    assert await talk.line(json.dumps({"sources": sources, "targets": world.targets()})) == "ready"
    try:
        yield talk
    finally:
        await talk.close()


async def attempts(world: World) -> None:
    async with world.neighbour() as neighbour, world.pod(world.attacker()) as uid, conversation(world, uid) as talk:
        world.damage()
        for name, one in ATTEMPTS.items():
            if (one.elsewhere and not world.isolates) or (one.own_kernel and world.kind.own_kernel):
                continue
            said: dict[str, Any] = json.loads(await talk.line(name))
            said["outside"] = await _outside(world, neighbour)
            tell({"attempt": name, **said})


async def _outside(world: World, neighbour: Uid) -> str:
    """What is wrong with the machine and with the neighbour after an attempt."""
    await asyncio.sleep(0)
    code, said = await world.say(neighbour, "echo", "well")
    ill = "" if (code, said) == (0, "well\n") else f"the neighbour answers {code} {said!r}"
    return "; ".join(each for each in (world.damage(), ill) if each)


def tell(line: dict[str, Any]) -> None:
    print(json.dumps(line), flush=True)


async def scenarios(world: World, names: list[str]) -> None:
    from support.escape_scenarios import SCENARIOS

    for name in names or SCENARIOS:
        before, wrong = world.count(), ""
        try:
            async with asyncio.timeout(60):
                await SCENARIOS[name](world)
            if (after := world.count()) != before:
                wrong = f"left behind: {before} became {after}"
            if damage := world.damage():
                wrong += f"; outside: {damage}"
        except Exception:
            wrong = traceback.format_exc()
        tell({"scenario": name, "wrong": wrong})


async def main(backend: str, folder: Path, token: str) -> None:
    async with a_world(backend, folder, token) as world:
        probe = await world.runtime.probe()
        if not probe.available:
            tell({"skip": f"{probe.reason}: {probe.message}"})
            return
        async with world.pod(world.attacker()):
            pass  # what is made once and kept (the fork-server, the folders) is there
        before = world.count()
        await attempts(world)
        after = world.count()
        tell({"census": "attempts", "wrong": "" if before == after else f"{before} became {after}"})
        if world.isolates:
            await scenarios(world, [])


if __name__ == "__main__":
    assert os.environ["SANDPOOL_ESCAPE_SECRET"] == sys.argv[3]
    asyncio.run(main(sys.argv[1], Path(sys.argv[2]), sys.argv[3]))
