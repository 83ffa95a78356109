"""What is kept of a run, and the numbers made from it."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from sandpool.kube.api import EventType
from sandpool.load.arrivals import Arrival
from sandpool.load.counts import Counts
from sandpool.load.errors import LoadError
from sandpool.load.machine import conditions, is_durable, usage
from sandpool.load.observed import decode_object
from sandpool.load.record import ClaimRecord, PoolLevel, RunHeader, read_lines, read_trace, write_lines
from sandpool.load.stage import ClaimBodies
from sandpool.load.summary import Used, held, summarise, waiting
from sandpool.load.warmth import Warmth, is_warm
from sandpool.model.labels import LAUNCH_TYPE, WARM_POOL

KEYS = [
    "claims",
    "ready",
    "failed",
    "p50_ms",
    "p90_ms",
    "p99_ms",
    "p99_9_ms",
    "max_ms",
    "wall_s",
    "claims_per_s",
    "warm_fraction",
    "conflicts",
    "not_found",
    "writes_per_claim",
    "reconciles_per_claim",
    "first_output_p50_ms",
    "files_p50_ms",
    "errors",
    "errors_by_kind",
    "failed_admitted",
    "goodput_per_s",
    "sustained_per_s",
    "inversions",
    "inversion_max_ms",
    "submit_per_s",
    "completion_per_s",
    "peak_waiting",
]


def a_run() -> list[ClaimRecord]:
    """Ten claims a second; the first is sent at once, each of the others 0.5 s late; Ready 10 ms after it was sent."""
    records = []
    for number in range(10):
        at, late = number / 10, 0.5 if number else 0.0
        records.append(
            ClaimRecord(name=f"c{number}", scheduled=at, sent=at + late, ready=at + late + 0.01, warm=number % 2 == 0)
        )
    return records


def test_lateness_is_part_of_the_latency_and_told_apart() -> None:
    found = summarise(a_run(), Counts(), Used(0.1, 1.0))
    assert found["p50_ms"] == pytest.approx(510)
    assert found["from_sent"]["p50_ms"] == pytest.approx(10)
    assert found["late_p99_ms"] == pytest.approx(500)
    assert found["max_ms"] == pytest.approx(510)
    assert found["wall_s"] == pytest.approx(1.41)
    assert found["warm_fraction"] == 0.5
    assert found["generator_cpu_share"] == 0.1


def test_the_summary_has_every_promised_key_also_of_nothing() -> None:
    for records in (a_run(), []):
        found = summarise(records, Counts(), Used(0.0))
        assert [key for key in KEYS if key not in found] == []
        assert msgspec.json.decode(msgspec.json.encode(found)) == found


def test_counts_are_per_claim_that_was_served_and_unknown_stays_unknown() -> None:
    counts = Counts(writes={"controllers": {"patch sandboxes": 70, "create events": 10}}, conflicts=0, reconciles=10)
    found = summarise(a_run(), counts, Used(0.0))
    assert (found["writes_per_claim"], found["reconciles_per_claim"], found["conflicts"]) == (7.0, 1.0, 0)
    assert found["not_found"] is None
    nothing = summarise([ClaimRecord(name="a", error="create: Forbidden")], counts, Used(0.0))
    assert nothing["writes_per_claim"] is None
    assert (nothing["ready"], nothing["failed"], nothing["errors"]) == (0, 1, 1)
    assert nothing["errors_by_kind"] == {"create: Forbidden": 1}


def test_waiting_and_held_over_time() -> None:
    records = [
        ClaimRecord(name="a", scheduled=0, ready=2, release_sent=5),
        ClaimRecord(name="b", scheduled=1, ready=3),
        ClaimRecord(name="c", scheduled=1),
    ]
    assert waiting(records) == [(0, 1), (1, 3), (2, 2), (3, 1)]
    assert held(records) == [(2, 1), (3, 2), (5, 1)]


def test_raw_lines_are_read_as_they_were_written_and_unknown_kinds_are_skipped(tmp_path: Path) -> None:
    path = tmp_path / "raw"
    lines = [RunHeader(result={"claims": 1}), *a_run(), PoolLevel(at=0.5, ready=3)]
    write_lines(path, lines)  # type: ignore[arg-type]
    path.write_text('{"kind": "later", "x": 1}\n\n' + path.read_text())
    assert list(read_lines(path)) == lines


def test_a_trace_is_what_was_kept_or_written_by_hand(tmp_path: Path) -> None:
    path = tmp_path / "trace"
    write_lines(path, [RunHeader(result={}), ClaimRecord(name="a", pool="p", scheduled=1.5), PoolLevel(at=0, ready=1)])
    assert read_trace(path) == [Arrival(1.5, "p")]
    path.write_text('{"offset": 2, "pool": "q"}\n{"offset": 0}\n')
    assert read_trace(path) == [Arrival(2, "q"), Arrival(0)]


@pytest.mark.parametrize(
    "text", ["no json", '{"offset": -1}', "{}", '{"offset": "1"}', '{"offset": 1, "pool": 5}', "x" * (2 << 20)]
)
def test_a_bad_trace_is_refused_by_its_line(tmp_path: Path, text: str) -> None:
    path = tmp_path / "trace"
    path.write_text('{"offset": 0}\n' + text + "\n")
    with pytest.raises(LoadError, match="line 2"):
        read_trace(path)


def test_claims_are_encoded_whatever_a_trace_calls_its_pool() -> None:
    call = ClaimBodies("team", "r1").create("load-1", 'a"}, "spec": {"b": "')
    body = msgspec.json.decode(call.body or b"")
    assert body["spec"] == {"warmPoolRef": {"name": 'a"}, "spec": {"b": "'}}
    assert body["metadata"] == {"name": "load-1", "labels": {"sandpool.dev/load": "r1"}}
    assert call.target == "/apis/extensions.agents.x-k8s.io/v1beta1/namespaces/team/sandboxclaims"


def test_a_claim_is_warm_if_a_member_of_a_pool_served_it() -> None:
    launched = {"member": True, "mine": False, "adopted": False}
    assert is_warm("mine", "member", launched) is True, "whenever it was made"
    assert is_warm("mine", "mine", launched) is False
    assert is_warm("mine", "adopted", launched) is False, "what it says counts, not its name"
    assert is_warm("mine", "unknown", launched) is True, "it came from the pool"
    assert is_warm("mine", "mine", {}) is False
    assert is_warm("mine", "", launched) is None


def test_what_is_served_while_claims_come() -> None:
    """Ten a second for four seconds; three a second are served, the first five from store."""
    records = [ClaimRecord(name=str(n), scheduled=n / 10) for n in range(41)]
    for number, record in enumerate(records[:20]):
        record.ready = 0.5 if number < 5 else 0.5 + (number - 4) / 3
    found = summarise(records, Counts(), Used(0.0))
    assert found["goodput_per_s"] == 3.75
    assert found["sustained_per_s"] == pytest.approx(3.0)
    assert summarise(records[:1], Counts(), Used(0.0))["goodput_per_s"] is None


def test_what_fails_before_it_is_taken_in_is_told_apart() -> None:
    records = [
        ClaimRecord(name="a", error="create: Forbidden"),
        ClaimRecord(name="b", answered=1.0, error="not Ready in time"),
        ClaimRecord(name="c", created=7, error="deleted by somebody else"),
        ClaimRecord(name="d", sent=0.5, throttled=3, turned_away=True),
        ClaimRecord(name="e", turned_away=True),
    ]
    found = summarise(records, Counts(), Used(0.0))
    assert (found["failed"], found["failed_admitted"], found["turned_away"], found["not_sent"]) == (3, 2, 2, 1)


def sandbox(name: str, revision: int, pool: str = "", ready: bool = True) -> bytes:
    labels = {WARM_POOL: pool, LAUNCH_TYPE: "warm"} if pool else {}
    conditions = [{"type": "Ready", "status": "True" if ready else "False", "reason": "", "message": "x"}]
    return msgspec.json.encode(
        {
            "metadata": {"name": name, "resourceVersion": str(revision), "labels": labels, "annotations": {"a": "b"}},
            "spec": {"podTemplate": {}},
            "status": {"conditions": conditions, "podIPs": ["10.0.0.1"]},
        }
    )


async def test_the_level_follows_members_that_are_ready_and_unclaimed() -> None:
    warmth = Warmth({"h"})
    told = (
        (EventType.ADDED, sandbox("a", 1, "h", ready=False), 1.0),
        (EventType.MODIFIED, sandbox("a", 2, "h"), 2.0),
        (EventType.ADDED, sandbox("b", 3, "h"), 2.0),
        (EventType.ADDED, sandbox("c", 4, "other pool"), 3.0),
        (EventType.MODIFIED, sandbox("a", 5), 4.0),
        (EventType.DELETED, sandbox("b", 6, "h"), 5.0),
    )
    for change, body, at in told:
        warmth.heard(change, decode_object(body), at)
    assert warmth.levels == [(2.0, 2), (4.0, 1), (5.0, 0)]
    assert warmth.launched == {"a": True, "b": True, "c": True}
    assert await warmth.full(0, ["a"]) == 5.0


def test_this_process_can_be_looked_at_and_a_gone_one_cannot(tmp_path: Path) -> None:
    import os

    found = usage(os.getpid())
    assert found is not None
    assert found.cpu > 0
    assert found.peak > 1 << 20
    assert usage(2**22 + 1) is None
    assert conditions()["cores"] >= 1
    assert is_durable("/dev/shm") == (False, "tmpfs")
    assert is_durable("/proc")[1] == "proc"
