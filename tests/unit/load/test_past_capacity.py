"""More claims than a server takes in, in virtual time. It says no 429: its answers only come late, as those of a server that paces what it takes in."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable

import msgspec
import pytest

from sandpool.base.clock import LoopClock
from sandpool.kube.api import EventType
from sandpool.kube.errors import NotFound, TooManyRequests
from sandpool.kube.requests import HttpRequest
from sandpool.load.arrivals import burst, constant
from sandpool.load.counts import Counts
from sandpool.load.driver import Driver
from sandpool.load.observed import decode_object
from sandpool.load.record import ClaimRecord
from sandpool.load.stage import ClaimBodies
from sandpool.load.summary import Used, summarise
from sandpool.load.work import Work
from support.clocks.manual_clock import START
from support.clocks.virtual_loop import run_virtually


class Paced:
    """Answers so many POSTs a second, in the order in which they came; then a claim exists. It is Ready after so many seconds, or never."""

    driver: Driver

    def __init__(self, rate: float, ready_after: float | None = None) -> None:
        self._step, self._ready_after = 1.0 / rate, ready_after
        self._free = 0.0
        self.posts = 0
        self.claims: dict[str, None] = {}

    async def send(self, call: HttpRequest) -> bytes:
        now = asyncio.get_running_loop().time()
        if call.method == "DELETE":
            name = call.target.rpartition("/")[2]
            if name not in self.claims:
                raise NotFound(name)
            del self.claims[name]
            return b"{}"
        name = msgspec.json.decode(call.body or b"")["metadata"]["name"]
        self.posts += 1
        self._free = max(now, self._free) + self._step
        await asyncio.sleep(self._free - now)
        self.claims[name] = None
        if self._ready_after is not None:
            asyncio.get_running_loop().call_later(self._ready_after, self._ready, name)
        return b"{}"

    def _ready(self, name: str) -> None:
        status = {"conditions": [{"type": "Ready", "status": "True"}], "sandbox": {"name": f"box-{name}"}}
        told = decode_object(msgspec.json.encode({"metadata": {"name": name}, "status": status}))
        self.driver.heard(EventType.MODIFIED, told, asyncio.get_running_loop().time())


def driving(server: Paced, work: Work, width: int, then: Callable[[Driver], Awaitable[None]]) -> None:
    async def main() -> None:
        line: tuple[object, ...] = (server, server)
        driver = Driver(*line, ClaimBodies("default", "r"), LoopClock(START), work, width, "default")  # type: ignore[arg-type, call-arg]
        server.driver = driver
        await then(driver)

    run_virtually(main())


def told(records: list[ClaimRecord]) -> dict[str, int]:
    found = summarise(records, Counts(), Used(0.0))
    return {name: found[name] for name in ("ready", "failed", "failed_admitted", "turned_away", "not_sent")}


def test_claims_that_were_never_sent_have_not_failed_and_are_never_sent_afterwards() -> None:
    """A hundred answers a second, nobody is ever Ready: whoever was sent has failed, whoever was not has only waited."""
    server = Paced(100.0)

    async def flood(driver: Driver) -> None:
        records = await driver.drive(constant(1000, 0.5), lambda number: f"c{number}", "pool")
        sent = [record for record in records if record.sent is not None]
        assert 64 <= len(sent) == server.posts < len(records) == 500
        assert all(record.error and not record.turned_away for record in sent)
        assert all(record.not_sent and not record.error for record in records if record.sent is None)
        assert (driver.tally.failed, driver.tally.turned_away) == (len(sent), 500 - len(sent))
        await driver.release_all()
        assert server.posts == len(sent), "nothing is sent once all were given up"
        assert not server.claims, "what was answered after that is released, too"
        answered = sum(record.answered is not None for record in records)
        late = Counter(record.error for record in sent)["create: no answer in time"]
        assert late == len(sent) - answered > 0
        assert told(records) == {
            "ready": 0,
            "failed": len(sent),
            "failed_admitted": answered,
            "turned_away": 500 - len(sent),
            "not_sent": 500 - len(sent),
        }

    driving(server, Work(dwell=None, timeout=0.5), 64, flood)


def test_ten_times_what_can_be_served_is_a_straight_line_and_no_failure() -> None:
    """The defaults of `sandpool load rate`: 30 s, a timeout of 60 s, 256 connections. Fifty a second are served, two seconds after they were taken in."""
    server = Paced(50.0, ready_after=2.0)

    async def flood(driver: Driver) -> None:
        records = await driver.drive(constant(500, 30), lambda number: f"c{number}", "pool")
        await driver.release_all()
        found = told(records)
        assert (found["failed"], found["failed_admitted"]) == (0, 0)
        assert found["ready"] + found["turned_away"] == 15_000
        assert found["turned_away"] == found["not_sent"] > 10_000
        seconds = Counter(int(record.ready) for record in records if record.ready is not None)
        assert {seconds[second] for second in range(3, 90)} <= {49, 50, 51}
        moments = [record.ready for record in records if record.ready is not None]
        assert moments == sorted(moments), "and the oldest came first"
        assert server.posts == found["ready"]
        assert not server.claims

    driving(server, Work(dwell=1.0), 256, flood)


def test_a_claim_that_was_sent_late_has_its_time_from_when_it_was_taken_in() -> None:
    """One connection, a POST takes 0.4 s, Ready takes 0.9 s more: of each second's patience nothing is used up by those before."""
    server = Paced(2.5, ready_after=0.9)

    async def few(driver: Driver) -> None:
        records = await driver.drive(burst(8), lambda number: f"c{number}", "pool")
        await driver.release_all()
        assert told(records) == {"ready": 3, "failed": 0, "failed_admitted": 0, "turned_away": 5, "not_sent": 5}
        assert server.posts == 3, "those for whom the connection was free before their second was over"

    driving(server, Work(dwell=None, timeout=1.0), 1, few)


def test_a_post_that_is_never_answered_has_failed_and_those_behind_it_were_not_sent() -> None:
    server = Paced(0.001)

    async def stuck(driver: Driver) -> None:
        records = await driver.drive(burst(10), lambda number: f"c{number}", "pool")
        assert told(records) == {"ready": 0, "failed": 3, "failed_admitted": 0, "turned_away": 7, "not_sent": 7}
        await driver.abandon()

    driving(server, Work(dwell=None, timeout=5.0), 3, stuck)


@pytest.mark.parametrize("answers", [1, 2])
def test_a_429_that_comes_too_late_is_a_failure_and_is_not_followed(answers: int) -> None:
    class Late(Paced):
        async def send(self, call: HttpRequest) -> bytes:
            if call.method == "DELETE":
                raise NotFound("x")
            self.posts += 1
            if self.posts == answers:
                await asyncio.sleep(10)
            raise TooManyRequests("busy", retry_after=1)

    server = Late(1.0)

    async def one(driver: Driver) -> None:
        records = await driver.drive(burst(1), lambda number: f"c{number}", "pool")
        await driver.release_all()
        assert told(records) == {"ready": 0, "failed": 1, "failed_admitted": 0, "turned_away": 0, "not_sent": 0}
        assert (records[0].error, server.posts) == ("create: no answer in time", answers)

    driving(server, Work(dwell=None, timeout=5.0), 1, one)
