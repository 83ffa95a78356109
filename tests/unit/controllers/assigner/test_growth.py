"""The work of one acquire does not depend on how many members there are: counted, not timed."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from types import FrameType
from typing import Any

import pytest

from sandpool.controllers.assigner.assigner import Assigner
from sandpool.controllers.assigner.facts import Claimant, Member, Pool, Take
from sandpool.model.metadata import Key, Uid
from support.api.opcodes import opcodes

NOW = datetime(2026, 1, 1, tzinfo=UTC)
POOL = Uid("pool")
NODES = 50
CONSTANT_TIME = {"__new__", "__setattr__", "get", "setdefault", "len", "iter", "next", "setprofile"}


def filled(members: int) -> Assigner:
    assigner = Assigner()
    assigner.put_pool(Pool(POOL, Key("a", "p")))
    for i in range(members):
        assigner.put_member(a_member(i))
    return assigner


def a_member(i: int, *, ready: bool = True) -> Member:
    return Member(Uid(f"m{i}"), Key("a", f"m{i}"), POOL, f"node{i % NODES}", ready)


def a_claim(i: int) -> Claimant:
    return Claimant(Uid(f"c{i}"), Key("a", f"c{i}"))


def builtins(work: Callable[[], object]) -> Counter[str]:
    """Functions called that are not Python's own code, where a scan could hide."""
    calls: Counter[str] = Counter()

    def profile(_: FrameType, event: str, function: Any) -> None:
        if event == "c_call":
            calls[function.__name__] += 1

    sys.setprofile(profile)
    try:
        work()
    finally:
        sys.setprofile(None)
    return calls


def claim_and_refill(assigner: Assigner, i: int, size: int) -> None:
    """One turn of the wheel: a claim takes a member, a new one is made and becomes ready."""
    decision = assigner.acquire(a_claim(i), POOL, NOW, NOW)
    assert isinstance(decision, Take)
    assigner.commit(a_claim(i).uid)
    assigner.put_member(a_member(size + i, ready=False))
    assigner.put_member(a_member(size + i))


@pytest.mark.parametrize("count", [opcodes, builtins])
def test_one_acquire(count: Callable[[Callable[[], object]], Any]) -> None:
    work = {}
    for size in (100, 10_000):
        assigner = filled(size)
        for i in range(size // 4):  # holes at the front, as after a long life
            assigner.acquire(a_claim(i), POOL, NOW, NOW)
        work[size] = count(lambda a=assigner, i=size: a.acquire(a_claim(i), POOL, NOW, NOW))  # type: ignore[misc]
    assert work[100] == work[10_000]
    if isinstance(work[100], Counter):
        assert set(work[100]) <= CONSTANT_TIME
    else:
        print(f"operations of one acquire: {work[100]}")
        assert 0 < work[100] < 2000


def test_a_long_life() -> None:
    """On average over many turns too: no operation is put off to a later, slow one."""
    work = {}
    for size in (100, 10_000):
        assigner = filled(size)
        turns = 200
        work[size] = (
            sum(opcodes(lambda a=assigner, i=i, n=size: claim_and_refill(a, i, n)) for i in range(turns)) / turns  # type: ignore[misc]
        )
    print(f"operations of one claim and its refill: {work}")
    assert work[10_000] == pytest.approx(work[100], rel=0.02)
