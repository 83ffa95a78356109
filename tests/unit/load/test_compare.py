"""Two sides with several runs: ratios, intervals, and when there is no conclusion."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest

from sandpool.load.compare import Ratio, compare, comparison_table, ratio_of_medians, read_run, read_side
from sandpool.load.errors import LoadError
from sandpool.load.record import ClaimRecord, RunHeader, write_lines


def run(p50: float, **more: Any) -> dict[str, Any]:
    return {"claims": 300, "p50_ms": p50, "conditions": {"cores": 2}, "load": {"shape": "burst"}, **more}


def test_the_ratio_is_that_of_the_medians() -> None:
    found = ratio_of_medians([10, 11, 12], [20, 22, 24], Random(1))
    assert found is not None
    assert found.value == 2
    assert found.low is not None
    assert found.high is not None
    assert 20 / 12 <= found.low <= 2 <= found.high <= 24 / 10
    assert found.verdict == "higher"


def test_the_interval_covers_the_true_ratio_about_as_often_as_it_says() -> None:
    random, covered = Random(5), 0
    for _ in range(200):
        a = [random.gauss(100, 10) for _ in range(10)]
        b = [random.gauss(50, 5) for _ in range(10)]
        found = ratio_of_medians(a, b, random, draws=400)
        assert found is not None
        assert found.low is not None
        assert found.high is not None
        covered += found.low <= 0.5 <= found.high
    assert 170 <= covered <= 200


def test_overlapping_sides_allow_no_conclusion() -> None:
    found = ratio_of_medians([10, 20, 30, 15], [12, 18, 33, 14], Random(1))
    assert found is not None
    assert found.verdict == "no conclusion"


def test_two_runs_are_too_few_for_an_interval() -> None:
    assert ratio_of_medians([10, 12], [5, 6], Random(1)) == Ratio(0.5)
    assert Ratio(0.5).verdict == "too few runs"
    assert ratio_of_medians([0, 0, 0], [1, 1, 1], Random(1)) is None
    assert ratio_of_medians([], [1], Random(1)) is None


def test_a_comparison_repeats_with_its_seed_and_tells_what_differed() -> None:
    a = [run(10.0 + n, conflicts=0, writes_per_claim=14.0) for n in range(5)]
    b = [run(5.0 + n / 10, conflicts=0, writes_per_claim=7.0) for n in range(5)]
    for one in b:
        one["conditions"] = {"cores": 4}
    found = compare(a, b, seed=3)
    assert found == compare(a, b, seed=3)
    assert found["measures"]["p50_ms"]["verdict"] == "lower"
    assert found["measures"]["conflicts"]["verdict"] == "equal"
    assert found["measures"]["writes_per_claim"]["ratio"] == 0.5
    assert found["differences"] == {"cores": {"a": ["2"], "b": ["4"]}}
    assert "max_ms" not in found["measures"]
    text = comparison_table(found)
    assert "p50_ms" in text
    assert "not the same: cores" in text


def test_the_same_numbers_on_both_sides_are_equal() -> None:
    found = compare([run(7.0)] * 3, [run(7.0)] * 3, seed=1)
    assert found["measures"]["p50_ms"]["verdict"] == "equal"


def test_runs_are_read_from_results_raw_files_and_folders(tmp_path: Path) -> None:
    (tmp_path / "one.json").write_bytes(msgspec.json.encode(run(1.0)))
    write_lines(tmp_path / "two.jsonl", [RunHeader(result=run(2.0)), ClaimRecord(name="a")])
    (tmp_path / "notes.txt").write_text("no result")
    assert [each["p50_ms"] for each in read_side(tmp_path)] == [1.0, 2.0]
    assert read_run(tmp_path / "two.jsonl")["p50_ms"] == 2.0


@pytest.mark.parametrize("text", ["[]", "{}", '{"claims": 1}', "no json"])
def test_other_files_are_refused_by_name(tmp_path: Path, text: str) -> None:
    path = tmp_path / "other.json"
    path.write_text(text)
    with pytest.raises(LoadError, match=r"other\.json"):
        read_run(path)


def test_an_empty_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LoadError, match=r"has no \.json"):
        read_side(tmp_path)
