"""Writes that the server refused (429) against servers that are a few lines long, in virtual time: who was served when, and what it cost."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from typing import Any, cast

import pytest

from sandpool.base.clock import LoopClock
from sandpool.kube.errors import TooManyRequests
from sandpool.kube.http import HttpApi
from sandpool.kube.pacing import Bounds, Outcome, Pacer
from sandpool.kube.priority import Priority, expedited
from sandpool.kube.priority_gate import MOST_PROOF, PriorityGate, RefusedWrite, RefusedWrites, proof
from sandpool.kube.requests import HttpRequest
from sandpool.kube.retry import RetryPolicy
from sandpool.model.kinds import PODS
from sandpool.model.patches import merge_patch

pytestmark = pytest.mark.looptime

PATCH = merge_patch({"metadata": {"labels": {"x": "y"}}})
POD = b'{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "namespace": "team", "resourceVersion": "7"}}'
PATIENT = RetryPolicy(throttled=1000.0)


def now() -> float:
    return asyncio.get_running_loop().time()


class Server:
    """Works on `at_once` writes, each for `seconds`, and refuses more at once; besides, it refuses what `refuses` says."""

    def __init__(
        self,
        at_once: int = 1000,
        seconds: float = 0.125,
        retry_after: int = 5,
        refuses: Callable[[str], bool] = lambda name: False,
    ) -> None:
        self.at_once, self.seconds, self.retry_after, self.refuses = at_once, seconds, retry_after, refuses
        self.inside = 0
        self.asked: list[tuple[str, float]] = []
        self.served: dict[str, float] = {}

    async def send(self, call: HttpRequest) -> bytes:
        name = call.target.rpartition("/")[2]
        self.asked.append((name, now()))
        if self.inside >= self.at_once or self.refuses(name):
            await asyncio.sleep(0.015625)
            raise TooManyRequests("busy", retry_after=self.retry_after)
        self.inside += 1
        await asyncio.sleep(self.seconds)
        self.inside -= 1
        self.served[name] = now()
        return POD

    @property
    def tries(self) -> Counter[str]:
        return Counter(name for name, _ in self.asked)

    def overtaken(self, oldest_first: Iterable[str]) -> float:
        """Seconds by which a write was served later than a younger one, at most."""
        latest, most = 0.0, 0.0
        for name in oldest_first:
            most, latest = max(most, latest - self.served[name]), max(latest, self.served[name])
        return most


def client(server: Server, *, limit: int = 20, width: int = 50, policy: RetryPolicy = PATIENT) -> HttpApi:
    clock = LoopClock(datetime(2026, 1, 1, tzinfo=UTC))
    gate = PriorityGate(clock, width=width, pacer=Pacer(Bounds(most=limit, start=limit)))
    return HttpApi(cast(Any, server), gate, policy, clock, lambda: 0.5)


async def write(api: HttpApi, names: Iterable[str]) -> None:
    async with asyncio.TaskGroup() as group:
        for name in names:
            group.create_task(api.patch(PODS, name, PATCH, "team"))


def names(count: int) -> list[str]:
    return [f"n{number}" for number in range(count)]


# The decision alone


def test_each_time_in_vain_wants_twice_the_proof() -> None:
    assert [proof(early) for early in (0, 1, 2, 3, 100)] == [1, 2, 4, 8, MOST_PROOF]


def a_rest(arrival: int, proven: int) -> RefusedWrite:
    return RefusedWrite((True, arrival), proven, cast(Any, None))


def test_the_oldest_that_has_a_reason_goes_and_nobody_instead_of_an_older_one() -> None:
    rests = RefusedWrites()
    unproven, younger, older = a_rest(1, 9), a_rest(7, 3), a_rest(4, 3)
    for rest in (unproven, younger, older):
        rests.add(rest)
    assert rests.take((True, 8), 2) is None, "nothing was served since"
    assert rests.take((True, 3), 3) is None, "the one that would be sent is older"
    assert rests.take((False, 8), 3) is None, "and what ends something goes first"
    assert rests.take((True, 8), 3) is older
    assert rests.take((True, 8), 3) is younger
    assert rests.take((True, 8), 8) is None
    assert rests.take((True, 8), 9) is unproven
    rests.remove(unproven)
    assert len(rests) == 0


# A server that refuses what is too much


@pytest.mark.parametrize("retry_after", [1, 5, 30])
@pytest.mark.parametrize("at_once", [3, 6, 12, 18])
async def test_what_was_refused_is_served_before_what_came_later(at_once: int, retry_after: int) -> None:
    """Within a fraction of a second, however long the server asks those to rest that it refuses."""
    server = Server(at_once, retry_after=retry_after)
    await write(client(server), names(300))
    assert sorted(server.served) == sorted(names(300)), "each once"
    assert server.overtaken(names(300)) < 1.0
    assert len(server.asked) < 300 * 1.25, "and the server was not asked in vain more often for it"


async def test_one_refusal_costs_a_place_and_not_the_time_that_the_server_asked_for() -> None:
    refused: list[str] = []
    server = Server(retry_after=30, refuses=lambda name: name == "n0" and not refused.append(name) and len(refused) < 2)
    api = client(server, width=1)
    await write(api, names(4))
    assert [name for name, _ in server.asked] == ["n0", "n1", "n0", "n2", "n3"]
    assert (api.gate.in_flight, api.gate.waiting) == (0, 0)


async def test_nobody_goes_early_while_the_server_serves_nobody() -> None:
    """After its time only, and then the oldest first: what it refused before is not overtaken by what it has not seen."""
    server = Server(retry_after=4, refuses=lambda name: now() < 21)
    api = client(server, limit=4)
    await write(api, names(60))
    silent = [at for _, at in server.asked if 1 < at < 21]
    assert len(silent) <= 20, "at most the limit for each of the five times that it asked for"
    assert server.overtaken(names(60)) < 1.0
    assert min(server.served, key=server.served.__getitem__) == "n0"


async def test_a_write_that_is_refused_for_a_reason_of_its_own_does_not_hold_up_the_others() -> None:
    server = Server(retry_after=5, refuses=lambda name: name == "n0")
    api = client(server)
    first = asyncio.create_task(write(api, ["n0"]))
    await asyncio.sleep(0)
    await write(api, names(400)[1:])
    assert server.tries["n0"] <= 12, "each time after twice as many were served"
    assert server.overtaken(names(400)[1:]) == 0.0
    assert api.gate.allowed > 5, "and it is no reason to send the server less"
    first.cancel()
    await asyncio.wait([first])
    assert (api.gate.in_flight, api.gate.waiting) == (0, 0)


async def test_to_go_early_is_no_attempt() -> None:
    """Whose turn comes early may be refused as well, and has as many attempts left as the policy gives."""
    seen: list[str] = []
    server = Server(
        refuses=lambda name: name == "n0" and not seen.append(name) and len(seen) <= 3, retry_after=8, seconds=0.0625
    )
    await write(client(server, width=1, policy=RetryPolicy(attempts=2, budget=9)), names(60))
    assert server.tries["n0"] == 4
    assert server.served["n0"] < 2


async def test_the_server_gets_no_request_more_than_without() -> None:
    """One that comes while another rests and there is much room: one write goes, and it is the older one."""
    refused: list[str] = []
    server = Server(refuses=lambda name: name == "old" and not refused.append(name) and len(refused) < 2)
    api = client(server)
    async with asyncio.TaskGroup() as group:
        group.create_task(write(api, ["old"]))
        await asyncio.sleep(0.5)
        await write(api, ["other"])
        server.asked.clear()
        group.create_task(write(api, ["young"]))
        await asyncio.sleep(0.0625)
        assert [name for name, _ in server.asked] == ["old"]
    assert [name for name, _ in server.asked] == ["old", "young"]
    assert len(server.served) == 3


# The gate


def a_gate(width: int = 1) -> PriorityGate:
    return PriorityGate(LoopClock(datetime(2026, 1, 1, tzinfo=UTC)), width=width)


async def refused(gate: PriorityGate, lane: Priority = Priority.URGENT) -> int:
    arrival = await gate.enter(lane, write=True)
    gate.record("patch x", Outcome.THROTTLED, now(), 9.0)
    gate.leave(lane)
    return arrival


async def served(gate: PriorityGate, lane: Priority = Priority.URGENT) -> None:
    await gate.enter(lane, write=True)
    gate.record("patch x", Outcome.SERVED, now())
    gate.leave(lane)


async def test_an_expedited_write_goes_before_one_that_was_refused() -> None:
    gate, order = a_gate(), list[str]()

    async def again(arrival: int) -> None:
        assert await gate.enter_again(Priority.URGENT, arrival, 0, 9.0)
        order.append("again")
        gate.leave(Priority.URGENT)

    async def other(name: str) -> None:
        await gate.enter(Priority.URGENT, write=True)
        order.append(name)
        gate.leave(Priority.URGENT)

    arrival = await refused(gate)
    async with asyncio.TaskGroup() as group:
        group.create_task(again(arrival))
        await asyncio.sleep(0)
        await served(gate, Priority.STATUS)
        await gate.enter(Priority.STATUS, write=True)
        group.create_task(other("begins"))
        with expedited():
            group.create_task(other("ends"))
        await asyncio.sleep(0)
        gate.leave(Priority.STATUS)
    assert order == ["ends", "again", "begins"]


async def test_a_refused_write_does_not_matter_to_other_priorities() -> None:
    gate = a_gate()
    resting = asyncio.create_task(gate.enter_again(Priority.URGENT, await refused(gate), 0, 9.0))
    await asyncio.sleep(0)
    for _ in range(3):
        await served(gate, Priority.BACKGROUND)
    assert gate.enter_now(Priority.BACKGROUND)
    gate.leave(Priority.BACKGROUND)
    assert not resting.done()
    assert await resting is False
    assert now() == 9


async def test_a_refused_write_that_gives_up_leaves_no_trace() -> None:
    gate = a_gate()
    resting = asyncio.create_task(gate.enter_again(Priority.URGENT, await refused(gate), 0, 9.0))
    await asyncio.sleep(1)
    resting.cancel()
    await asyncio.wait([resting])
    assert gate.enter_now(Priority.URGENT), "nobody is there to go instead"
    gate.leave(Priority.URGENT)
    assert (now(), gate.in_flight, gate.waiting) == (1, 0, 0)


async def test_a_place_that_meets_cancellation_is_given_back() -> None:
    gate = a_gate()
    resting = asyncio.create_task(gate.enter_again(Priority.URGENT, await refused(gate), 0, 9.0))
    await asyncio.sleep(0)
    await served(gate, Priority.STATUS)
    young = asyncio.create_task(gate.enter(Priority.URGENT, write=True))
    await asyncio.sleep(0)  # the one that rests has the place, though its task has not run yet
    resting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await resting
    await young
    gate.leave(Priority.URGENT)
    assert (gate.in_flight, gate.waiting) == (0, 0)
