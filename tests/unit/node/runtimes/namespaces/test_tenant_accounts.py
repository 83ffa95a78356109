"""What the sandboxes of a tenant may use together, and when that is written and looked at."""

from __future__ import annotations

from pathlib import Path

import pytest

from sandpool.node.runtimes.namespaces import cgroup_settings
from sandpool.node.runtimes.namespaces.cgroup_hierarchy import CgroupReader, ControllerPath
from sandpool.node.runtimes.namespaces.tenant_accounts import (
    INTERVAL,
    LINGER,
    LONGEST,
    MEASURE_INTERVAL,
    RECLAIM_STEP,
    REPORTED,
    SPARE,
    UNLIMITED,
    Account,
    MemoryLimits,
    lowered,
    reclaim_step,
    writes,
)
from sandpool.node.runtimes.namespaces.tenant_groups import TenantGroup, unreclaimable

MIB = 1 << 20
GIB = 1 << 30


def begun(*limits: int | None) -> Account:
    """With live sandboxes, and the limits that they need."""
    account = Account()
    for number, limit in enumerate(limits):
        account.enter(str(number), limit)
    account.applied, account.fresh = account.raised(), False
    return account


def test_a_tenant_may_have_what_its_living_sandboxes_may_and_some_spare() -> None:
    assert begun(512 * MIB, 256 * MIB).applied == MemoryLimits(
        768 * MIB + SPARE + 96 * MIB, (64 + 32) * MIB + 12 * MIB + 8 * MIB
    )
    assert begun().applied == MemoryLimits(SPARE, 8 * MIB)


def test_without_a_limit_of_one_there_is_none_of_all() -> None:
    account = begun(512 * MIB, None)
    assert account.applied == MemoryLimits(UNLIMITED, (64 + 256) * MIB + 40 * MIB + 8 * MIB)
    account.leave("1", 0.0)
    assert account.target == begun(512 * MIB).applied


def test_the_same_sandbox_counts_once() -> None:
    account = begun(512 * MIB)
    account.enter("0", 256 * MIB)
    assert account.target == begun(256 * MIB).target
    account.leave("0", 0.0)
    account.leave("0", 0.0)
    assert account.target == begun().target


def test_one_write_is_enough_for_several_starts() -> None:
    account, written = Account(), 0
    for number in range(100):
        account.enter(str(number), 512 * MIB)
        new = account.raised()
        written += new != account.applied
        account.applied, account.fresh = new, False
        assert account.minimum.fits(new)
        assert new.fits(account.target)
    assert written < 35
    for number in range(50):  # one ends and another one takes its place
        account.leave(str(number), 0.0)
        account.enter(f"next-{number}", 512 * MIB)
        assert account.raised() == account.applied


def test_limits_are_written_in_the_order_that_the_kernel_takes() -> None:
    low, high = MemoryLimits(GIB, MIB), MemoryLimits(2 * GIB, MIB)
    names = ["memory.memsw.limit_in_bytes", "memory.limit_in_bytes"]
    assert [(file, value) for file, value, _ in writes(1, low, high)] == [(name, str(2 * GIB)) for name in names]
    assert [file for file, _, _ in writes(1, high, low)] == names[::-1]
    assert writes(1, low, MemoryLimits(GIB, 7)) == [(cgroup_settings.SOCKETS, "7", False)]
    assert writes(2, low, MemoryLimits(UNLIMITED, 7)) == [("memory.max", "max", True)]
    assert {value for _, value, _ in writes(1, low, MemoryLimits())} == {"-1"}
    assert writes(1, low, low) == writes(2, low, low) == []


@pytest.mark.parametrize(
    ("applied", "used", "expected"),
    [
        (4 * GIB, 0, GIB),
        (4 * GIB, GIB - 5 * MIB, GIB),
        (4 * GIB, GIB, GIB + SPARE),
        (4 * GIB, 3 * GIB, 3 * GIB + SPARE),
        (3 * GIB, 3 * GIB, 3 * GIB),  # it does not follow a growing usage
        (UNLIMITED, 0, GIB),
    ],
)
def test_how_far_a_limit_can_be_lowered_at_once(applied: int, used: int, expected: int) -> None:
    target = MemoryLimits(GIB, MIB)
    assert lowered(MemoryLimits(applied, MIB), target, MemoryLimits(used, 0)) == MemoryLimits(expected, MIB)


def test_the_kernel_is_pressed_step_by_step() -> None:
    target = MemoryLimits(GIB, MIB)
    assert reclaim_step(target, MemoryLimits(3 * GIB, 0)) == RECLAIM_STEP
    assert reclaim_step(target, MemoryLimits(GIB + MIB, 0)) == 5 * MIB
    assert reclaim_step(target, MemoryLimits(GIB // 2, 0)) == 0
    assert reclaim_step(MemoryLimits(), MemoryLimits(3 * GIB, 0)) == 0


def test_a_limit_is_lowered_a_moment_later_and_at_most_once_in_a_while() -> None:
    account = begun(GIB, GIB)
    assert account.due is None
    account.leave("0", 100.0)
    assert account.due == 100.0 + INTERVAL
    account.leave("1", 100.5)
    assert account.due == 100.0 + INTERVAL


def test_what_cannot_be_lowered_is_tried_again_more_and_more_rarely() -> None:
    account = begun(GIB, GIB)
    account.leave("0", 100.0)
    waits: list[float] = []
    for _ in range(8):
        account.due = None
        account.settled(100.0, 0)
        assert account.due is not None
        waits.append(account.due - 100.0)
    assert waits == [1, 2, 4, 8, 16, 32, LONGEST, LONGEST]
    account.applied, account.due = account.target, None
    account.settled(100.0, 0)
    assert account.due is None
    account.enter("2", GIB)
    account.leave("2", 200.0)
    account.due = 200.2  # another one ended meanwhile
    account.settled(200.0, 0)
    assert account.due == pytest.approx(200.2)


def test_what_is_left_is_told_once_if_it_stays() -> None:
    account = begun(GIB)
    told = [
        account.settled(now, leftover)
        for now, leftover in ((0.0, REPORTED + 1), (MEASURE_INTERVAL, REPORTED + 1), (70.0, REPORTED + 1))
    ]
    assert told == [False, True, False]
    assert not account.settled(130.0, 0)
    told = [account.settled(now, REPORTED + 1) for now in (200.0, 205.0, 210.0)]
    assert told == [False, False, True]
    assert account.should_measure(220.0)
    assert not account.should_measure(219.0)
    assert account.should_reclaim(None)
    assert not account.should_reclaim(0)


def test_a_group_without_sandboxes_stays_for_a_while() -> None:
    account = begun(GIB)
    account.leave("0", 100.0)
    assert not account.expired(99.0 + LINGER)
    assert account.expired(100.0 + LINGER)
    account.enter("1", GIB)
    assert not account.expired(100.0 + LINGER)
    account.leave("1", 200.0)
    account.keep(300.0)
    assert not account.expired(299.0 + LINGER)
    assert account.due == 300.0 + LINGER


# On version 2, which this machine may not have: a directory that looks like a group.


def group(tmp_path: Path, **files: str) -> TenantGroup:
    for name in ("max", "current", "reclaim", "stat"):
        (tmp_path / f"memory.{name}").write_text(files.get(name, ""))
    return TenantGroup(2, (str(tmp_path), []), LINGER)


def written(tmp_path: Path) -> str:
    file = tmp_path / "memory.max"
    text = file.read_text()
    file.write_text("")
    return text


def test_a_limit_of_version_2_is_set_raised_and_lowered(tmp_path: Path) -> None:
    one = group(tmp_path, current="1000")
    one.enter("a", GIB)
    assert written(tmp_path) == ""  # it is not there yet
    one.begin()
    assert written(tmp_path) == str(GIB + GIB // 8 + SPARE)
    one.enter("b", 8 * MIB)
    assert written(tmp_path) == ""
    one.enter("c", None)
    assert written(tmp_path) == "max"
    one.leave("c", 0.0)
    one.leave("b", 0.0)
    assert one.settle(measure=False) is None
    assert written(tmp_path) == str(GIB + GIB // 8 + SPARE)
    one.leave("a", 0.0)
    (tmp_path / "memory.current").write_text(str(500 * MIB))
    one.settle(measure=False)
    assert written(tmp_path) == str(500 * MIB + SPARE)
    assert (tmp_path / "memory.reclaim").read_text() == ""
    (tmp_path / "memory.stat").write_text(f"file {100 * MIB}\nshmem {60 * MIB}\nslab_reclaimable {MIB}\n")
    assert one.settle(measure=True) == unreclaimable(2, str(tmp_path)) == 459 * MIB
    assert written(tmp_path) == ""
    assert (tmp_path / "memory.reclaim").read_text() == str(RECLAIM_STEP)
    assert not one.is_empty()


def test_whoever_starts_while_a_limit_is_lowered_has_what_it_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel may take long to lower it, and then does, also if it was raised meanwhile."""
    one = group(tmp_path, current="1000")
    one.enter("a", GIB)
    one.begin()
    one.leave("a", 0.0)
    real = TenantGroup.write

    def slow(self: TenantGroup, old: MemoryLimits, new: MemoryLimits) -> None:
        monkeypatch.setattr(TenantGroup, "write", real)
        one.enter("b", 4 * GIB)
        (tmp_path / "memory.max").write_text("")
        real(self, old, new)
        assert written(tmp_path) == str(SPARE)

    monkeypatch.setattr(TenantGroup, "write", slow)
    one.settle(measure=False)
    assert written(tmp_path) == str(4 * GIB + GIB // 2 + SPARE)
    assert one.account.applied == one.account.target


def test_a_group_that_was_never_made_has_nothing(tmp_path: Path) -> None:
    one = TenantGroup(2, (str(tmp_path / "none"), []), LINGER)
    one.enter("a", GIB)
    one.leave("a", 0.0)
    assert one.settle(measure=True) == 0
    assert one.is_empty()


def test_only_where_memory_is_counted_are_sandboxes_in_a_group_of_their_tenant() -> None:
    hybrid = {
        "memory": ControllerPath(1, "/m/x"),
        "pids": ControllerPath(1, "/p/x"),
        "unified": ControllerPath(2, "/u/x"),
    }
    assert cgroup_settings.places_of(hybrid, "team") == hybrid | {"memory": ControllerPath(1, "/m/x/tenant-team")}
    assert cgroup_settings.tenant_group(hybrid, "team") == ("/m/x/tenant-team", [("memory.use_hierarchy", "1", False)])
    unified = {name: ControllerPath(2, "/u/x") for name in ("memory", "cpu", "unified")}
    assert cgroup_settings.places_of(unified, "team") == dict.fromkeys(unified, ControllerPath(2, "/u/x/tenant-team"))
    assert cgroup_settings.tenant_group(unified, "team") == (
        "/u/x/tenant-team",
        [("cgroup.subtree_control", "+memory +cpu", True)],
    )
    without = {"pids": ControllerPath(1, "/p/x")}
    assert cgroup_settings.places_of(without, "team") == without
    assert cgroup_settings.places_of(hybrid, "") == hybrid
    assert cgroup_settings.tenant_group(without, "team") is cgroup_settings.tenant_group(hybrid, "") is None
    assert CgroupReader(cgroup_settings.places_of(hybrid, "team")).ooms(["/m/x/tenant-team/pod"]) == 0
