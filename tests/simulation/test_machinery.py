"""The machinery of the simulation itself: virtual time, seeded order, lines that can be cut."""

from __future__ import annotations

import asyncio
from random import Random
from typing import Any

import pytest

from sandpool.controlplane.store.store import Store
from sandpool.kube.errors import ApiError, Unreachable
from sandpool.model.kinds import CONFIG_MAPS, POOLS, TEMPLATES
from sandpool.model.metadata import NO_REVISION
from sandpool.simulation import scenario
from sandpool.simulation.faults import RATES, Fault, Faults
from sandpool.simulation.faulty_api import FaultyApi
from sandpool.simulation.scenario import Tenant
from sandpool.simulation.seeded_loop import RandomStreams, Stuck, run_seeded
from sandpool.simulation.steps import Author, Sight, WitnessedLog
from sandpool.simulation.users import TemplateEditor
from sandpool.simulation.world import World

NOTE: dict[str, Any] = {"metadata": {"name": "note"}}


async def _race(places: list[int]) -> list[int]:
    async def run(place: int) -> None:
        await asyncio.sleep(0)
        places.append(place)

    await asyncio.gather(*(run(place) for place in range(8)))
    return places


def test_an_hour_takes_no_time() -> None:
    async def wait() -> float:
        await asyncio.sleep(3600)
        return asyncio.get_running_loop().time()

    assert run_seeded(wait(), Random(1)) == 3600


def test_the_seed_decides_who_is_first() -> None:
    one, again, other = (run_seeded(_race([]), Random(seed)) for seed in (1, 1, 2))
    assert one == again
    assert one != other
    assert sorted(one) == sorted(other) == list(range(8))


def test_a_run_that_waits_for_nobody_ends() -> None:
    async def wait() -> None:
        await asyncio.get_running_loop().create_future()

    with pytest.raises(Stuck, match="waits for ever"):
        run_seeded(wait(), Random(1))


def test_a_run_that_never_rests_ends() -> None:
    async def spin() -> None:
        while True:
            await asyncio.sleep(0)

    with pytest.raises(Stuck, match="without rest"):
        run_seeded(spin(), Random(1))


def test_a_stream_does_not_shift_another() -> None:
    streams = RandomStreams(7)
    alone = [streams.of("one").random() for _ in range(3)]
    two = streams.of("two")
    two.random()
    assert [streams.of("one").random() for _ in range(3)] == alone
    assert two.random() != alone[0]


class _Always(Faults):
    """One kind of fault strikes whenever it may, no other ever does."""

    def __init__(self, only: Fault | None) -> None:
        super().__init__(RandomStreams(0))
        self.rates = {fault: 1.0 if fault is only else 0.0 for fault in RATES}


async def _opened() -> World:
    world = World(Random(1))
    await world.open(("red",), ("node-0",), 1000)
    return world


def _faulty_api(world: World, only: Fault | None, killed: list[str]) -> FaultyApi:
    def crash() -> None:
        killed.append("killed")
        api.cut = True

    def asked(who: Author, *_: object) -> None:
        assert who.name == "leader-1"

    api = FaultyApi(world, "leader-1", _Always(only), Random(3), 0.01, crash, asked, lambda *_: None)
    return api


async def _there(world: World) -> bool:
    try:
        await world.api.get(CONFIG_MAPS, "note", "red")
    except ApiError:
        return False
    return True


@pytest.mark.parametrize(
    ("fault", "error", "there"),
    [
        (Fault.INTERNAL, ApiError, False),
        (Fault.TOO_MANY, ApiError, False),
        (Fault.UNAVAILABLE, ApiError, False),
        (Fault.TIMEOUT, ApiError, False),
        (Fault.REFUSED, Unreachable, False),
        (Fault.LOST, Unreachable, True),
        (Fault.TIMEOUT_AFTER, ApiError, True),
        (Fault.INTERNAL_AFTER, ApiError, True),
    ],
)
def test_what_a_fault_does_to_a_write(fault: Fault, error: type[Exception], there: bool) -> None:
    async def work() -> None:
        world = await _opened()
        with pytest.raises(error):
            await _faulty_api(world, fault, []).create(CONFIG_MAPS, NOTE, "red")
        assert await _there(world) is there
        await world.close()

    run_seeded(work(), Random(1))


def test_a_cut_line_carries_nothing_not_even_from_a_finally() -> None:
    async def work() -> None:
        world = await _opened()
        api = _faulty_api(world, None, [])

        async def reconcile() -> None:
            try:
                await asyncio.sleep(10)
            finally:
                await api.create(CONFIG_MAPS, NOTE, "red")

        task = asyncio.get_running_loop().create_task(reconcile())
        await asyncio.sleep(1)
        api.cut = True
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert not await _there(world)
        await world.close()

    run_seeded(work(), Random(1))


def test_a_slow_write_lands_though_its_sender_is_dead() -> None:
    async def work() -> None:
        world = await _opened()
        api = _faulty_api(world, Fault.SLOW, [])
        task = asyncio.get_running_loop().create_task(api.create(CONFIG_MAPS, NOTE, "red"))
        await asyncio.sleep(0.0001)
        api.cut = True
        task.cancel()
        await asyncio.sleep(60)
        assert await _there(world)
        await world.close()

    run_seeded(work(), Random(1))


def test_a_crash_in_a_call_kills_the_process() -> None:
    async def work() -> None:
        world = await _opened()
        killed: list[str] = []
        api = _faulty_api(world, Fault.CRASH_IN_CALL, killed)
        with pytest.raises(asyncio.CancelledError):
            await api.create(CONFIG_MAPS, NOTE, "red")
        assert killed
        with pytest.raises(asyncio.CancelledError):
            await api.get(CONFIG_MAPS, "note", "red")
        await world.close()

    run_seeded(work(), Random(1))


@pytest.mark.parametrize(
    ("fault", "controller", "edited"),
    [(Fault.CONFLICT, "claim", True), (Fault.LOST, "claim", False), (Fault.CONFLICT, "pool", False)],
)
def test_what_failed_transfers_lead_to(fault: Fault, controller: str, edited: bool) -> None:
    """The template changes, if the transfer had no effect and so will be tried again."""

    async def work() -> None:
        world = await _opened()
        faults = _Always(None)
        chance = Random(1)
        TemplateEditor(world, faults, chance)
        place = Tenant("red", ("template-0",), ("pool-0",))
        made = await world.api.create(TEMPLATES, scenario.template("template-0", chance), "red")
        pool = await world.api.create(POOLS, scenario.pool("pool-0", place, chance), "red")
        for _ in range(20):
            faults.on_strike(fault, Author("leader-1", controller, saw=Sight(pool=pool)))
        await asyncio.sleep(1)
        found = await world.api.get(TEMPLATES, "template-0", "red")
        assert (found.metadata.generation > made.metadata.generation) is edited
        await world.close()

    run_seeded(work(), Random(1))


def test_what_is_written_together_with_a_claim_is_put_down_to_who_granted_it() -> None:
    """The claim itself, as it was sent, is its user's."""
    seen: list[tuple[str, str]] = []
    leader = Author("leader-1", "claim", "inline-1")

    async def main() -> None:
        log = WitnessedLog(lambda change, who: seen.append((change.record.key[2:], str(who))))
        store = await Store.open(log)
        claim, box = ("g/claims/red/c", NO_REVISION, bytes), ("g/boxes/red/m", NO_REVISION, bytes)
        log.added_by = leader
        store.put_together(claim, box, claim)
        log.added_by = leader  # and nothing comes of it: the claim is created alone
        store.put("g/claims/red/d", NO_REVISION, bytes)
        store.put_together(("g/boxes/red/n", NO_REVISION, bytes), ("g/boxes/red/o", NO_REVISION, bytes))
        await store.close()

    run_seeded(main(), Random(1))
    granted, nobody = str(leader), "nobody"
    assert seen == [
        ("claims/red/c", nobody),
        ("boxes/red/m", granted),
        ("claims/red/c", granted),
        ("claims/red/d", nobody),
        ("boxes/red/n", nobody),
        ("boxes/red/o", nobody),
    ]
