"""How many claims wait, who may still join them, and when whoever was turned away is told to come back."""

from __future__ import annotations

from typing import Any

import pytest

from sandpool.controllers.assigner.forecast import Outlook
from sandpool.controllers.claim.backlog import AT_LEAST, LATEST, LONGEST_PAUSE, MANY, Backlog, Bounds
from sandpool.loop.cache import Cache
from sandpool.model.claim import SandboxClaim
from sandpool.model.kinds import CLAIMS
from sandpool.model.metadata import Revision, Uid
from support.simulated.claim_parts import a_claim, condition

MISSING = condition(status="False", reason="SandboxMissing")
STEADY = Outlook(rate=10.0, expected=5.0)

POOL = Uid("pool")


class Desk:
    def __init__(self, bounds: Bounds = Bounds()) -> None:
        self.claims: Cache[SandboxClaim] = Cache(CLAIMS)
        self.claims.replace((), Revision(1))
        self.backlog = Backlog(self.claims, bounds)
        self._revision = 1

    def put(
        self, name: str, namespace: str = "default", *, meta: dict[str, Any] | None = None, **status: Any
    ) -> SandboxClaim:
        self._revision += 1
        head = {
            "name": name,
            "namespace": namespace,
            "uid": f"{namespace}-{name}",
            "resourceVersion": str(self._revision),
        }
        claim = a_claim(meta={**head, **(meta or {})}, status=status or None)
        self.claims.upsert(claim)
        return claim

    def fill(self, count: int, namespace: str = "default") -> None:
        for number in range(count):
            self.put(f"c{number}", namespace)


def test_a_claim_waits_from_its_creation_until_it_has_a_sandbox() -> None:
    desk = Desk()
    desk.put("a")
    assert desk.backlog.waiting.used == 1
    desk.put("a", conditions=[MISSING])
    assert desk.backlog.waiting.used == 1, "it still does"
    claim = desk.put("a", conditions=[condition()], sandbox={"name": "s"})
    assert desk.backlog.waiting.used == 0
    desk.put("a", conditions=[MISSING])
    assert desk.backlog.waiting.used == 1, "its sandbox was deleted behind its back"
    desk.claims.missing(claim.metadata.key, claim.metadata.uid)
    assert desk.backlog.waiting.used == 0
    assert desk.backlog.waiting.held == {}


def test_one_that_is_served_when_it_comes_never_waits() -> None:
    desk = Desk()
    desk.put("a", conditions=[condition()], sandbox={"name": "s"})
    assert desk.backlog.waiting.used == 0


@pytest.mark.parametrize("reason", ["TemplateNotFound", "WarmPoolNotFound", "ClaimExpired", "InvalidMetadata"])
def test_one_that_was_refused_takes_nobody_s_place(reason: str) -> None:
    desk = Desk()
    desk.put("a")
    desk.put("a", conditions=[condition(status="False", reason=reason)])
    assert desk.backlog.waiting.used == 0


def test_what_was_there_when_we_came_waits_too() -> None:
    claims: Cache[SandboxClaim] = Cache(CLAIMS)
    one = a_claim(meta={"resourceVersion": "3"})
    claims.replace((one,), Revision(3))
    assert Backlog(claims).waiting.used == 1


def test_beyond_the_count_nobody_joins_and_others_keep_a_share() -> None:
    desk = Desk(Bounds(waiting=90))
    desk.fill(80)
    busy = desk.backlog.busy("default", POOL, STEADY, 100.0)
    assert busy is not None
    assert "80 claims of namespace default wait" in busy.why
    assert desk.backlog.busy("another", POOL, STEADY, 100.0) is None, "what one namespace fills is not all there is"
    desk.put("c0", conditions=[condition()], sandbox={"name": "s"})
    assert desk.backlog.busy("default", POOL, STEADY, 100.0) is None, "a place is free"


def test_beyond_the_expected_wait_nobody_joins() -> None:
    desk = Desk(Bounds(wait=60.0))
    assert desk.backlog.busy("default", POOL, Outlook(rate=10.0, expected=60.0), 0.0) is None
    busy = desk.backlog.busy("default", POOL, Outlook(rate=10.0, expected=72.3), 0.0)
    assert busy is not None
    assert busy.retry_after == 13, "when the wait is expected to be short enough again"
    assert "wait 73 s, and may wait 60 s" in busy.why


def test_what_nobody_can_say_is_no_reason() -> None:
    assert Desk().backlog.busy("default", POOL, Outlook(expected=None), 0.0) is None


def test_those_who_are_turned_away_come_back_one_after_another() -> None:
    """At the rate at which places become free, so that they are not turned away again, and not all at once."""
    desk = Desk(Bounds(waiting=1))
    desk.put("a")
    desk.put("b", "another")

    def told(now: float) -> int:
        busy = desk.backlog.busy("default", POOL, Outlook(rate=2.0, expected=1.0), now)
        assert busy is not None
        return busy.retry_after

    assert [told(0.0) for _ in range(6)] == [1, 1, 2, 2, 3, 3]
    assert told(2.0) == 2, "time has passed"
    assert max(told(2.0) for _ in range(1000)) == LATEST
    assert told(1000.0) == 1, "long after, nobody is waited for"


def test_those_of_a_slow_pool_do_not_put_off_those_of_others() -> None:
    desk = Desk(Bounds(waiting=1))
    desk.put("a")
    desk.put("b", "another")
    slow = desk.backlog.busy("default", Uid("slow"), Outlook(), 0.0)
    quick = desk.backlog.busy("default", POOL, Outlook(rate=2.0, expected=1.0), 0.0)
    assert slow is not None
    assert quick is not None
    assert (slow.retry_after, quick.retry_after) == (LATEST, 1)


def test_an_unknown_rate_says_the_latest() -> None:
    desk = Desk(Bounds(waiting=1))
    desk.put("a")
    desk.put("b", "another")
    busy = desk.backlog.busy("default", POOL, Outlook(), 0.0)
    assert busy is not None
    assert busy.retry_after == LATEST


def test_a_claim_that_leaves_makes_room() -> None:
    desk = Desk()
    desk.put("a")
    desk.put("a", meta={"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["a/b"], "resourceVersion": "51"})
    assert desk.backlog.waiting.used == 0


def test_new_claims_are_taken_in_at_once_until_many_wait() -> None:
    backlog = Desk().backlog
    assert backlog.pause(POOL, Outlook(waiting=MANY - 1, rate=200.0), 5.0) == 0.0
    assert backlog.pause(POOL, Outlook(waiting=MANY, rate=200.0), 5.0) > 0.0


def test_then_they_are_taken_in_as_fast_as_others_are_served_one_after_the_other() -> None:
    backlog, many = Desk().backlog, Outlook(waiting=MANY, rate=200.0)
    pauses = [backlog.pause(POOL, many, 5.0) for _ in range(10)]
    assert pauses == pytest.approx([number / 200.0 for number in range(1, 11)])
    assert backlog.pause(POOL, many, 5.03) == pytest.approx(11 / 200.0 - 0.03), "behind those that came before"
    assert backlog.pause(Uid("another"), many, 5.0) == pytest.approx(1 / 200.0), "pools do not wait for each other"


def test_few_are_taken_in_however_slowly_others_are_served_and_nobody_is_kept_for_long() -> None:
    backlog, stuck = Desk().backlog, Outlook(waiting=MANY, rate=0.0)
    pauses = [backlog.pause(POOL, stuck, 5.0) for _ in range(2_000)]
    assert pauses[0] == pytest.approx(1 / AT_LEAST)
    assert max(pauses) == pytest.approx(LONGEST_PAUSE)


def test_who_cannot_pause_comes_back_when_those_who_do_are_taken_in() -> None:
    backlog, many = Desk().backlog, Outlook(waiting=MANY, rate=200.0)
    assert backlog.outside(POOL, Outlook(waiting=MANY - 1, rate=200.0), 5.0) is None
    pauses = [backlog.pause(POOL, many, 5.0) for _ in range(500)]
    told = [backlog.outside(POOL, many, 5.0) for _ in range(1_000)]
    after = [each.retry_after for each in told if each is not None]
    assert max(pauses) == pytest.approx(2.5)
    assert after[0] == 3, "when those before it are taken in"
    assert after == sorted(after), "one after another"
    assert after[-1] == 8, "a thousand more, two hundred a second"
    assert backlog.pause(POOL, many, 5.0) == pytest.approx(501 / 200.0), "who was told to come back puts nobody off"


def test_who_cannot_pause_comes_back_within_bounds_however_slowly_others_are_served() -> None:
    backlog, stuck = Desk().backlog, Outlook(waiting=MANY, rate=0.0)
    told = [backlog.outside(POOL, stuck, 5.0) for _ in range(5_000)]
    assert {each.retry_after for each in told if each is not None} == set(range(1, LATEST + 1))
