"""Runs attempts and scenarios on one backend as whoever starts this, and prints what became of each as a line of JSON.

A process of its own is the main process here: the secret stands in its arguments and its environment, where a real one has
its own.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
import traceback
from pathlib import Path
from typing import Any

from sandpool.model.metadata import Uid
from support.escape.census import Census
from support.escape.hostile import ATTEMPTS
from support.escape.scenarios import SCENARIOS
from support.escape.talk import conversation
from support.escape.world import World, a_world


async def attempts(world: World) -> None:
    async with world.neighbour() as neighbour, world.pod(world.attacker()) as uid, conversation(world, uid) as talk:
        world.damage()
        for name, one in ATTEMPTS.items():
            if (one.elsewhere and not world.isolates) or not world.kind.tries(own_kernel_only=one.only_own_kernel):
                continue
            said: dict[str, Any] = json.loads(await talk.line(name))
            said["outside"] = world.damage()
            if (greeting := await world.greet(neighbour)) != world.neighbour_token:
                said["outside"] += f"; the neighbour says {greeting!r}"
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
    async with world.neighbour() as neighbour:
        world.damage()
        before = await _steady(world)
        for name in names or (name for name in SCENARIOS if world.kind.plays(name)):
            wrong, began = "", time.monotonic()
            try:
                async with asyncio.timeout(60):
                    await SCENARIOS[name](world)
                wrong = "; ".join(
                    each for each in (await _left(before, world), await _outside(world, neighbour)) if each
                )
            except Exception:
                wrong = traceback.format_exc()
            tell({"scenario": name, "wrong": wrong, "seconds": round(time.monotonic() - began, 2)})


async def _steady(world: World) -> Census:
    """A count that stays the same for a while: what was on its way out is gone."""
    seen = [world.count()]
    while len(seen) < 5 or len(set(seen[-5:])) > 1:
        await asyncio.sleep(0.02)
        seen.append(world.count())
    return seen[-1]


async def _left(before: Census, world: World) -> str:
    """Nothing, as soon as what has ended is reaped; a leak stays."""
    after = world.count()
    for _ in range(300):
        if after == before:
            return ""
        await asyncio.sleep(0.02)
        after = world.count()
    return f"left behind: {before} became {after}"


async def main(backend: str, folder: Path, token: str, names: list[str]) -> None:
    async with a_world(backend, folder, token) as world:
        probe = await world.runtime.probe()
        if not probe.available and probe.reason != "NotIsolated":  # that one is for the attempts to show
            tell({"skip": f"{probe.reason}: {probe.message}"})
            return
        async with world.pod(world.attacker()):
            pass  # what is made once and kept (the fork-server, the folders) is there
        before = await _steady(world)
        await attempts(world)
        tell({"census": "attempts", "wrong": await _left(before, world)})
        if world.isolates:
            await scenarios(world, names)


if __name__ == "__main__":
    assert os.environ["SANDPOOL_ESCAPE_SECRET"] == sys.argv[3]
    asyncio.run(main(sys.argv[1], Path(sys.argv[2]), sys.argv[3], sys.argv[4:]))
