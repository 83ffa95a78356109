"""Scenarios for sandboxes with a kernel of their own: limits end the whole sandbox, and the machine sees no processes of theirs,
only those that their kernel lets them run in. What must hold is the same: the machine and the neighbours notice nothing."""

from __future__ import annotations

import asyncio
import os

from sandpool.base.errors import NodeError
from sandpool.node.backend import Exit, PodStatus, Unsupported
from sandpool.node.runtimes.contract import Limits
from support.escape.box import a_box
from support.escape.census import descendants, stubs
from support.escape.lifetime import OUTLIVE, SAFE_WAYS, SIGNALS
from support.escape.limits import BOMB, EAT, last
from support.escape.world import FOREVER, World

OVERHEAD = 64  # MiB that the kernel itself may use
ENOUGH = 100  # processes of the machine for a sandbox that rests
COUNT = "grep -al {mark} /proc/[0-9]*/cmdline | wc -l"
ORPHANS = """
import os
for n in range(500):
    p = os.fork()
    if p == 0:
        if os.fork() == 0: os._exit(0)
        os._exit(0)
    os.waitpid(p, 0)
print("done")
"""


async def _limits(world: World) -> frozenset[str]:
    """What is really enforced: an ordinary user may have no control groups."""
    return (await world.runtime.probe()).enforced


def ending(seen: PodStatus | None) -> Exit | None:
    """How the container ended, also if it has been started again since."""
    if seen is None:
        return None
    state = seen.containers[0].state
    return state if isinstance(state, Exit) else seen.containers[0].last


async def a_fork_bomb_ends_its_own_kernel(world: World) -> None:
    async with a_box(world, Limits(pids=200)) as box:
        assert last((await box.python(BOMB, "100"))[1]) >= 100
    if "pids" not in await _limits(world):
        return
    async with a_box(world, Limits(pids=40)) as box:
        bomb = asyncio.create_task(box.python(BOMB, "5000", "stay"))
        async with asyncio.timeout(50):
            ended = await asyncio.shield(box.container.ended)
        await asyncio.wait({bomb})
        assert ended.code == 137
        assert "limit of processes" in ended.message, ended


async def too_much_memory_ends_whoever_takes_it(world: World) -> None:
    """Or only the program that took it, if the machine finds that one first."""
    async with world.pod(world.workload(("sh", "-c", FOREVER), limits={"memory": "256Mi"})) as uid:
        assert last((await world.python(uid, EAT, "120"))[1]) == 120
    if "memory" not in await _limits(world):
        return
    async with world.pod(world.workload(("sh", "-c", FOREVER), limits={"memory": "64Mi"})) as uid:
        code, said = await world.python(uid, EAT, "400")
        assert code == 137
        assert 5 <= last(said) <= 64 + OVERHEAD, last(said)
        try:
            well = await world.shell(uid, "echo well") == (0, "well\n")
        except NodeError:
            well = False
        if not well:
            state = ending(await world.until(uid, lambda seen: ending(seen) is not None))
            assert state is not None
            assert (state.code, state.reason) == (137, "OOMKilled"), state


async def signals_to_the_command_that_is_init(world: World) -> None:
    """It is the container's own, and may end by them. The sandbox is still its owner's to end, and nobody else heard any."""
    async with world.pod(world.workload(("sh", "-c", FOREVER))) as uid:
        await world.python(uid, SIGNALS)
        await world.until(uid, lambda seen: ending(seen) is not None)  # the proof: they do arrive
    assert world.victim.hits() == ""


async def orphans_cost_the_machine_nothing(world: World) -> None:
    """They stay in the sandbox's own table, where nobody asks for them; the machine has none of them."""
    async with world.pod(world.workload(("sh", "-c", FOREVER))) as uid:
        assert (await world.python(uid, ORPHANS))[1] == "done\n"
        async with asyncio.timeout(20):
            while len(stubs(os.getpid())) > ENOUGH:
                await asyncio.sleep(0.05)
        assert await world.shell(uid, "echo well") == (0, "well\n")


async def nobody_outlives_its_own_kernel(world: World) -> None:
    before = descendants(os.getpid())
    async with world.pod(world.workload(("sh", "-c", FOREVER))) as uid:
        mark = f"{world.mark}-alive"
        assert (await world.python(uid, OUTLIVE, mark, *SAFE_WAYS, "restless"))[1] == "begun\n"
        _, count = await world.shell(uid, COUNT.format(mark=mark))
        assert int(count) >= len(SAFE_WAYS)  # the proof: they are there
        its_own = descendants(os.getpid()) - before
        assert its_own & stubs(os.getpid())
    async with asyncio.timeout(20):
        while its_own & descendants(os.getpid()):
            await asyncio.sleep(0.02)


async def nobody_opens_a_door_where_there_is_no_boxd(world: World) -> None:
    """What would lead to boxd leads to nobody: no program inside can answer in its place."""
    async with a_box(world) as box:
        try:
            sock = await box.container.connect()
        except Unsupported:
            return
        sock.close()
        raise AssertionError("there is a way to boxd")


SCENARIOS = (
    a_fork_bomb_ends_its_own_kernel, too_much_memory_ends_whoever_takes_it, signals_to_the_command_that_is_init,
    orphans_cost_the_machine_nothing, nobody_outlives_its_own_kernel, nobody_opens_a_door_where_there_is_no_boxd,
)  # fmt: skip
