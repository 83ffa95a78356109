"""The report for people: a table with blocks, and a page that needs nothing else."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from typing import Any

import pytest

from sandpool.load.counts import Counts
from sandpool.load.driver import Tally
from sandpool.load.page.figures import linear, logarithmic
from sandpool.load.page.page import page
from sandpool.load.progress import tally_text
from sandpool.load.record import ClaimRecord
from sandpool.load.summary import Used, summarise
from sandpool.load.table import table

CONDITIONS = {
    "machine": "x86_64, <b>fast</b>",
    "cores": 2,
    "memory_bytes": 1 << 34,
    "kernel": "Linux 6",
    "python": "CPython 3.11",
    "versions": {"sandpool": "0"},
    "load_average_before": [0.1, 0.2, 0.3],
    "cluster": "local cluster",
    "backend": "hollow",
    "durable": True,
    "note": '<script>alert("x")</script>',
}
COUNTS = Counts(
    writes={"controllers": {"patch sandboxes": 1400, "patch sandboxwarmpools/status": 1, "create events": 200}},
    conflicts=0,
    not_found=0,
    reconciles=200,
)


def records(count: int = 200, late: float = 0.2) -> list[ClaimRecord]:
    return [
        ClaimRecord(
            name=f"c{n}",
            scheduled=0.0,
            sent=late,
            ready=late + 0.01 + n / 1000,
            first_output=late + 0.1,
            files=0.025,
            release_sent=1.0,
            released=1.1,
            warm=True,
        )
        for n in range(count)
    ]


def result(some: list[ClaimRecord], counts: Counts = COUNTS, **more: Any) -> dict[str, Any]:
    load = {"shape": "burst", "claims": len(some), "pool_size": 600}
    return {**summarise(some, counts, Used(0.1, 1.0, 0.5, 1 << 27)), "load": load, "conditions": CONDITIONS, **more}


class Checker(HTMLParser):
    """Every tag is closed in order; nothing is fetched."""

    VOID = frozenset({"meta", "br"})

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.add(tag)
        assert not {name for name, _ in attrs} & {"src", "href", "srcset", "onclick", "onload"}
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.add(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


STEPS = [
    {"rate": 100.0, "p50_ms": 5.0, "p99_ms": 20.0, "errors": 0, "held": True, "generator_share": 0.1},
    {"rate": 200.0, "p50_ms": 90.0, "p99_ms": 220.0, "errors": 1, "held": False, "generator_share": 0.2},
]


@pytest.mark.parametrize(
    "shown",
    [
        (records(), {}),
        (records(1), {}),
        ([ClaimRecord(name="a", error="create: Forbidden")], {}),
        (records(), {"steps": STEPS, "highest_rate": 100.0, "limited_by": "p99"}),
    ],
    ids=["many", "one", "failed", "ramp"],
)
def test_the_page_is_whole_and_fetches_nothing(shown: tuple[list[ClaimRecord], dict[str, Any]]) -> None:
    some, more = shown
    text = page(result(some, **more), some, [(0.0, 600), (0.2, 400), (1.0, 600)])
    checker = Checker()
    checker.feed(text)
    assert checker.open == []
    assert "script" not in checker.seen
    assert "&lt;script&gt;" in text, "what a user wrote is text"
    assert "<b>fast" not in text
    assert not re.search(r"url\(|@import|nan|inf\b", text.split("</style>")[1] + text.split("<style>")[1])
    assert "prefers-color-scheme: dark" in text
    assert 'name="viewport"' in text


def test_the_page_shows_both_ways_to_count_where_they_differ() -> None:
    late, prompt = records(late=0.2), records(late=0.0)
    assert "from when it was sent" in page(result(late), late, [])
    assert "from when it was sent" not in page(result(prompt), prompt, [])


def test_the_page_of_a_ramp_shows_every_step_and_where_it_broke() -> None:
    some = records()
    load = {"shape": "ramp", "pool_size": 600, "p99_limit_ms": 100.0}
    found = {**result(some), "load": load, "steps": STEPS, "highest_rate": 100.0, "limited_by": "p99"}
    text = page(found, some, [])
    for shown in (
        "<title>p50</title>",
        "<title>p99</title>",
        ">held</text>",
        ">not held</text>",
        "what the p99 may be",
    ):
        assert shown in text, shown
    assert "Limited by p99. Everything below is about the highest rate that was held." in text
    assert text.count('class="broken"') == 1
    assert "100/s: p50 5 ms  p99 20.0 ms, 0 errors, held" in table(found, [])


def test_a_ramp_of_which_no_step_held_has_a_page() -> None:
    some = records()
    broken = [{**step, "held": False} for step in STEPS]
    text = page(result(some, steps=broken, highest_rate=None, limited_by="p99"), some, [])
    assert "No rate was held" in text
    assert "the last rate that was tried" in text


def test_files_are_told_where_there_were_any() -> None:
    some, without = records(), [ClaimRecord(name="a", ready=0.1)]
    assert result(some)["files_p50_ms"] == result(some)["files_p99_9_ms"] == 25.0
    assert "file in and out       p50 25.0 ms" in table(result(some), [])
    assert "file written and read back" in page(result(some), some, [])
    assert result(without)["files_p50_ms"] is None
    assert "file" not in table(result(without), [])


def test_the_table_tells_the_numbers_and_draws_them() -> None:
    some = records()
    text = table(result(some), [each for record in some if (each := record.latency) is not None])
    assert "200 of 200 ready" in text
    assert "writes per claim      7" in text
    assert "besides 200 create events" in text
    assert "█" in text
    assert "backend hollow, durable" in text


def test_the_table_says_what_is_not_known_and_what_failed() -> None:
    some = [ClaimRecord(name="a", error="not Ready in time (PoolNotFound)")]
    counts = Counts(reasons={"writes": "403 on /metrics", "reconciles": "no page"})
    text = table(result(some, counts), [])
    assert "not known: 403 on /metrics" in text
    assert "not Ready in time (PoolNotFound): 1" in text
    assert "0 of 1 ready, 1 failed" in text


def test_axes_hold_their_values_between_round_ticks() -> None:
    assert linear(304).ticks == [0, 100, 200, 300, 400]
    assert linear(1).ticks == pytest.approx([0, 0.25, 0.5, 0.75, 1])
    assert logarithmic(0.001, 1).ticks == pytest.approx([0.001, 0.01, 0.1, 1])
    assert len(logarithmic(0.076, 0.174).ticks) >= 2
    assert len(logarithmic(5, 5).ticks) >= 1
    axis = logarithmic(1, 100)
    assert 0 < axis.place(1) < axis.place(10) < axis.place(100) < 1


def test_progress_says_only_what_there_is() -> None:
    assert tally_text(Tally()) == ""
    assert tally_text(Tally(planned=10, sent=5, ready=3)) == "3 of 10 ready, 5 sent"
    assert (
        tally_text(Tally(planned=10, sent=5, ready=3, failed=1, throttled=2))
        == "3 of 10 ready, 5 sent, 1 failed, 2 throttled"
    )


def test_claims_that_waited_in_vain_are_told_apart_from_failures() -> None:
    away = [ClaimRecord(name=f"x{n}", sent=0.1, throttled=1, turned_away=True) for n in range(3)]
    unsent = [ClaimRecord(name=f"y{n}", turned_away=True) for n in range(40)]
    text = table(result([*records(), *away, *unsent]), [])
    assert "200 of 243 ready, 3 times throttled (429)\n" in text
    assert "43 were not admitted within their timeout" in text
    assert "40 of them were not sent: all connections waited for answers" in text
    assert "failed" not in text
    assert "not sent" not in table(result([*records(), *away]), [])
    shown = page(result([*records(), *unsent]), records(), [])
    assert "Of these not sent" in shown
