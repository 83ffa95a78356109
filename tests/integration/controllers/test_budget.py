"""What a claim costs: round trips, writes and reconciles, counted. The numbers are promises, not measurements."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from sandpool.kube.api import WRITES
from sandpool.model.kinds import CLAIMS
from sandpool.model.metadata import Uid
from sandpool.node.runtimes.fake import FakeOptions
from support.clocks.virtual_loop import run_virtually
from support.simulated.control_plane import ROUND_TRIP, ControlPlane, a_control_plane

MOST_WRITES = 8  # per claim, the refill included, and the status of its pool not, which one write tells for many claims
POOL_STATUS = ("pool", "patch_status", "sandboxwarmpools")
QUIET = 40.0  # virtual seconds after which nothing is left to be told


def virtually(work: Callable[[ControlPlane], Awaitable[None]], hollow: FakeOptions = FakeOptions()) -> None:
    async def main() -> None:
        async with a_control_plane(hollow) as plane:
            await plane.template()
            await work(plane)

    run_virtually(main())


class Stopwatch:
    """How long each claim took from its creation until this process knew it to be Ready, in virtual time."""

    def __init__(self, plane: ControlPlane) -> None:
        self.born: dict[Uid, float] = {}
        self.took: dict[Uid, float] = {}
        self._plane = plane
        plane.controllers.caches.claims.subscribe(self._step)

    def _step(self, old: object, new: object) -> None:
        claim = new
        if claim is None:
            return
        uid = claim.metadata.uid  # type: ignore[attr-defined]
        now = self._plane.clock.monotonic()
        self.born.setdefault(uid, now)
        ready = any(one.type == "Ready" and one.status == "True" for one in claim.status.conditions)  # type: ignore[attr-defined]
        if ready:
            self.took.setdefault(uid, now - self.born[uid])

    def round_trips(self) -> set[float]:
        return {round(seconds / ROUND_TRIP, 6) for seconds in self.took.values()}


def writes(plane: ControlPlane) -> int:
    sums = plane.distant.sums
    return sum(count for (_, verb, _), count in sums.items() if verb in WRITES) - sums[POOL_STATUS]


async def burst(plane: ControlPlane, names: list[str]) -> None:
    await asyncio.gather(*(plane.claim(name) for name in names))


def held(plane: ControlPlane, claims: int) -> None:
    """The whole budget, for so many warm claims since the last `clear`, refill included."""
    sums = plane.distant.sums
    assert plane.distant.failures == []
    assert writes(plane) <= MOST_WRITES * claims, sums
    assert plane.reconciles("claim") == claims
    assert plane.reconciles("sandbox") <= 3 * claims  # two for each new sandbox, and one for each that was handed out
    assert sums["claim", "patch", "sandboxes"] == claims  # the transfers
    assert sums["claim", "patch_status", "sandboxclaims"] == claims  # the bindings
    assert sums["claim", "patch", "sandboxclaims"] == 2 * claims  # which sandbox, and when it was first ready
    assert sums["pool", "create", "sandboxes"] == claims
    assert sums["sandbox", "create", "pods"] == claims
    assert sums["sandbox", "patch", "pods"] == claims
    assert sums["sandbox", "patch_status", "sandboxes"] <= claims
    assert not [call for call in sums if call[1] == "get"]


def test_one_claim() -> None:
    async def work(plane: ControlPlane) -> None:
        await plane.pool(5)
        await plane.filled(5)
        await asyncio.sleep(QUIET)
        plane.clear()
        watch = Stopwatch(plane)
        await plane.claim("one")
        await plane.served(["one"])
        await plane.filled(5)
        await asyncio.sleep(QUIET)
        assert watch.round_trips() == {2.0}
        held(plane, 1)

    virtually(work)


@pytest.mark.parametrize("bursts", [1, pytest.param(5, marks=pytest.mark.long)])
def test_bursts_of_300_claims(bursts: int) -> None:
    async def work(plane: ControlPlane) -> None:
        await plane.pool(600)
        await plane.filled(600)
        await asyncio.sleep(QUIET)
        plane.clear()
        watch = Stopwatch(plane)
        for number in range(bursts):
            names = [f"c{number}-{index}" for index in range(300)]
            await burst(plane, names)
            await plane.served(names)
            await plane.filled(600)
        await asyncio.sleep(QUIET)
        assert watch.round_trips() == {2.0}
        assert len(watch.took) == 300 * bursts
        held(plane, 300 * bursts)
        assert plane.distant.sums[POOL_STATUS] < 0.1 * 300 * bursts
        claims = (await plane.user.list(CLAIMS, "default")).items
        names = [claim.status.sandbox.name for claim in claims if claim.status.sandbox]
        assert len(names) == len(set(names)) == 300 * bursts

    virtually(work)


def test_to_release_a_claim_costs_the_controllers_nothing() -> None:
    """The collector takes the sandbox, and its pod with it: nobody has anything to decide."""

    async def work(plane: ControlPlane) -> None:
        await plane.pool(5)
        await plane.filled(5)
        names = ["one", "two", "three"]
        await burst(plane, names)
        await plane.served(names)
        await plane.filled(5)
        await asyncio.sleep(QUIET)
        plane.clear()
        for name in names:
            await plane.user.delete(CLAIMS, name, "default")

        async def gone() -> bool:
            return len(await plane.sandboxes()) == 5

        await plane.until(gone)
        await asyncio.sleep(QUIET)
        assert plane.distant.sums == {}
        assert plane.reconciles("sandbox") == plane.reconciles("pool") == 0

    virtually(work)


def test_nothing_happens_to_a_pool_that_is_full() -> None:
    async def work(plane: ControlPlane) -> None:
        await plane.pool(20)
        await plane.filled(20)
        await asyncio.sleep(QUIET)
        plane.clear()
        await asyncio.sleep(3600)
        assert plane.distant.sums == {}

    virtually(work)


@pytest.mark.parametrize("start", [(0.005, 0.05), (2.0, 20.0)], ids=["fast", "slow"])
def test_filling_a_pool_costs_two_posts_and_one_status_per_member(start: tuple[float, float]) -> None:
    async def work(plane: ControlPlane) -> None:
        plane.clear()
        await plane.pool(100)
        await plane.filled(100)
        await asyncio.sleep(QUIET)
        sums = plane.distant.sums
        assert plane.distant.failures == []
        assert sums["pool", "create", "sandboxes"] == sums["sandbox", "create", "pods"] == 100
        assert sums["sandbox", "patch_status", "sandboxes"] == 100
        assert sums["pool", "patch_status", "sandboxwarmpools"] <= 25  # at most one in a second
        assert plane.reconciles("sandbox") == 200  # to make the pod, and when it serves

    virtually(work, FakeOptions(start=start))
