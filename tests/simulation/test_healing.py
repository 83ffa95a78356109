"""More claims than can be served, and trouble with them: everybody is served in order, and then it is as if nothing had been. In virtual time,
which passes only where somebody waits for something."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace

import pytest

from sandpool.controllers.claim.keep import SURPLUS_PER_SECOND
from support.simulated.crowded_world import HOME, NEIGHBOUR, POOL, Account, Crowded

CLAIMED = 60
CALLS = 0.02
"""Seconds: some calls of a leader. What becomes ready together is handed out together, and nobody knows which answer comes first."""
NODE = 3.5
"""Seconds that one start ends later than another that began after it, by the node's own dice: that is the order of those who can only start cold."""


@dataclass(frozen=True)
class Trouble:
    """`strike` makes the claims and whatever goes wrong, and puts it right. `cold`: whether any claim can only start cold. `tried`: claims of a
    namespace for whom it may be tried whether a cold start is sooner, and turns out to be."""

    strike: Callable[[Crowded], Awaitable[None]]
    cold: bool = False
    tried: int = 2
    neighbour: int = 0  # claims of another namespace


async def nothing_else(world: Crowded) -> None:
    await world.claims(CLAIMED)


async def controllers_that_die(world: Crowded) -> None:
    await world.claims(CLAIMED // 2)
    world.operator.current.kill()
    await world.claims(CLAIMED // 2, first=CLAIMED // 2)


async def slow_starts(world: Crowded) -> None:
    await world.claims(CLAIMED // 2)
    world.kubelet.start_time = 20.0
    await world.claims(CLAIMED // 2, first=CLAIMED // 2)
    await asyncio.sleep(15)
    world.kubelet.start_time = 1.0


async def a_cold_burst(world: Crowded) -> None:
    """Of a pool of none, which becomes an ordinary one while they start."""
    await world.pool(HOME, 0)
    await asyncio.sleep(20)
    await world.claims(CLAIMED)
    await world.pool(HOME, POOL)


async def a_burst_with_variables(world: Crowded) -> None:
    """Every other claim asks for what no member has."""
    for number in range(0, CLAIMED, 2):
        await world.claims(1, first=number)
        await world.claims(1, first=number + 1, env=[{"name": "TASK", "value": str(number)}])


async def an_image_that_does_not_start(world: Crowded, seconds: float = 60.0) -> None:
    world.image(starts=False)
    await world.claims(CLAIMED)
    await asyncio.sleep(seconds)
    world.image(starts=True)


async def an_image_that_does_not_start_for_long(world: Crowded) -> None:
    """Longer than the pool has patience with its members."""
    await an_image_that_does_not_start(world, 700.0)


async def a_slow_disk(world: Crowded) -> None:
    world.disk.seconds = 0.5
    await world.claims(CLAIMED)
    await asyncio.sleep(20)
    world.disk.seconds = 0.0


async def a_paused_process(world: Crowded) -> None:
    await world.claims(CLAIMED // 2)
    pause = asyncio.create_task(world.paused(20))
    await world.claims(CLAIMED // 2, first=CLAIMED // 2)
    await pause


async def a_noisy_neighbour(world: Crowded) -> None:
    """One with a pool of its own on the same node, and twice as many claims, which come faster."""
    await world.pool(NEIGHBOUR, POOL)
    await asyncio.sleep(20)
    async with asyncio.TaskGroup() as both:
        both.create_task(world.claims(2 * CLAIMED, every=0.02, namespace=NEIGHBOUR))
        both.create_task(world.claims(CLAIMED))


TROUBLES = {
    "nothing else": Trouble(nothing_else),
    "controllers that die": Trouble(controllers_that_die, tried=POOL),
    "slow starts": Trouble(slow_starts),
    "a cold burst": Trouble(a_cold_burst, cold=True),
    "a burst with variables": Trouble(a_burst_with_variables, cold=True),
    "an image that does not start": Trouble(an_image_that_does_not_start),
    "a slow disk": Trouble(a_slow_disk),
    "a paused process": Trouble(a_paused_process),
    "a noisy neighbour": Trouble(a_noisy_neighbour, tried=POOL, neighbour=2 * CLAIMED),
}
NOISY = "a noisy neighbour"
PLACES = pytest.mark.parametrize("inline", [True, False], ids=["on one machine", "on Kubernetes"])


def healed(trouble: Trouble, seed: int, *, inline: bool) -> Account:
    found = Crowded(seed, inline=inline).account(trouble.strike)
    everybody, pools = CLAIMED + trouble.neighbour, 2 if trouble.neighbour else 1
    assert found.violations == []
    assert len(found.by) == len(found.created) == everybody, "nobody is lost, nobody waits for ever"
    assert found.waited > CLAIMED / 2, "it was past capacity"
    served_in_order(found, trouble)
    assert found.newcomer <= 0.05, "two seconds later it is as if nothing had been"
    assert found.newcomer_writes <= 4
    assert found.newcomer_by != "newcomer", "it is served by a member"
    assert found.full_after < 10
    assert found.left == {"SandboxClaim": everybody + 1, "SandboxWarmPool": pools * POOL}, "nothing else is left"
    assert found.pods == everybody + 1 + pools * POOL
    assert most_within(1.0, found.in_vain) <= SURPLUS_PER_SECOND + 1
    assert found.in_line == 0
    assert found.forgotten, "when claims and pools go, nothing is kept of them"
    return found


def served_in_order(found: Account, trouble: Trouble) -> None:
    for namespace in (HOME, NEIGHBOUR):
        claims = found.of(namespace)
        own = [key for key in claims if found.own(key)]
        if trouble.cold:
            assert found.early(own, NODE) == []
            claims = [key for key in claims if key not in own]
        early = found.early(claims, CALLS)
        assert [key for key in early if not found.own(key)] == [], "no member goes to one while an older one waits"
        assert len(early) <= trouble.tried


def most_within(seconds: float, moments: list[float]) -> int:
    return max((sum(begin <= moment < begin + seconds for moment in moments) for begin in moments), default=0)


@PLACES
@pytest.mark.parametrize("trouble", [trouble for trouble in TROUBLES if trouble != NOISY])
def test_it_heals_after(trouble: str, inline: bool) -> None:
    healed(TROUBLES[trouble], 2, inline=inline)


@PLACES
def test_who_has_a_noisy_neighbour_does_not_wait_for_it(inline: bool) -> None:
    found = healed(TROUBLES[NOISY], 1, inline=inline)
    last = max(found.order.index(key) for key in found.of(HOME))
    assert last <= 2 * (CLAIMED + POOL), "each has half of the starts as long as both want them"


@PLACES
def test_what_was_started_in_vain_meanwhile_goes(inline: bool) -> None:
    """While nothing becomes ready, the oldest try a sandbox of their own. Those that a member makes superfluous are not kept. On Kubernetes a pause
    of the leader does not stop the nodes: when it is back members are ready, and nobody tries."""
    for trouble in ("an image that does not start", *(["a paused process"] if inline else [])):
        found = healed(TROUBLES[trouble], 3, inline=inline)
        assert found.in_vain, "somebody has tried"


@PLACES
def test_it_heals_after_an_image_that_did_not_start_for_long(inline: bool) -> None:
    healed(Trouble(an_image_that_does_not_start_for_long), 2, inline=inline)


@pytest.mark.long
@PLACES
@pytest.mark.parametrize("trouble", TROUBLES)
@pytest.mark.parametrize("seed", range(10, 14))
def test_it_heals_whatever_the_order_of_events(seed: int, trouble: str, inline: bool) -> None:
    """Where a new leader, or a neighbour, makes the pool's measures worth little, more try a cold start."""
    healed(replace(TROUBLES[trouble], tried=CLAIMED // 5), seed, inline=inline)
