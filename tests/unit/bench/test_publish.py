"""Publishing: only what is between the markers changes, and the tables say what the results say."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from bench.publish import BEGIN, END, PAGES, NoPlace, placed, read_why, wanted

from bench import pages
from sandpool.load.series import Series, alternated, read_all, write

MACHINE = {
    "measured": "2026-11-15T12:00:00+00:00",
    "machine": "x86_64, a processor",
    "cores": 2,
    "memory_bytes": 8 << 30,
    "kernel": "Linux 6.0",
    "python": "CPython 3.11.7",
    "versions": {"sandpool": "0.1.0"},
    "load_average_before": [0.07, 0.1, 0.2],
    "fsync": True,
    "file_system": "ext4",
}
RUN: dict[str, Any] = {
    "claims": 300,
    "ready": 300,
    "failed": 0,
    "p50_ms": 20.0,
    "p90_ms": 25.0,
    "p99_ms": 30.0,
    "max_ms": 31.0,
    "claims_per_s": 9000.0,
    "warm_fraction": 1.0,
    "conflicts": 0,
    "writes_per_claim": 7.0,
    "reconciles_per_claim": 1.0,
    "busy_cores_before": 0.05,
}


def a_series(name: str, *runs: dict[str, Any], **others: list[dict[str, Any]]) -> Series:
    return Series(
        scenario=name,
        title=f"the title of {name}",
        command="sandpool load burst",
        sides={"ours": list(runs), **others},
        conditions=MACHINE,
    )


def found(*series: Series) -> dict[str, Series]:
    return {each.scenario: each for each in series}


def test_only_what_is_between_the_markers_changes() -> None:
    text = f"before\n{BEGIN}\nold\n{END}\nafter\n"
    assert placed(text, "new\nnumbers", "x.md") == f"before\n{BEGIN}\nnew\nnumbers\n{END}\nafter\n"
    assert placed(placed(text, "new", "x.md"), "new", "x.md") == placed(text, "new", "x.md")


@pytest.mark.parametrize("text", ["", BEGIN, END, f"{END}{BEGIN}", f"{BEGIN}{END}{BEGIN}{END}"])
def test_a_document_without_one_place_is_refused(text: str) -> None:
    with pytest.raises(NoPlace, match=r"x\.md must have the line"):
        placed(text, "new", "x.md")


@pytest.mark.parametrize("name", PAGES)
def test_documents_are_made_from_the_results_of_a_folder(tmp_path: Path, name: str) -> None:
    (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / name).write_text(f"# A title\n\n{BEGIN}\n{END}\n\nThe end.\n")
    (tmp_path / "why.toml").write_text('[burst-p50]\nwhy = "the machine sleeps."\n')
    results = tmp_path / "results"
    write(a_series("local-burst", {**RUN, "p50_ms": 60.0}), results)
    text = wanted(name, tmp_path, results, tmp_path / "why.toml")
    assert text.startswith("# A title")
    assert text.endswith(f"{END}\n\nThe end.\n")
    assert "| ≤ 30 ms | 60.0 ms | 1 | **missed**, 2.00 times the target: the machine sleeps. |" in text
    assert "| ≤ 60 ms | 30.0 ms | 1 | reached |" in text
    assert "Linux 6.0" in text


def test_results_survive_being_written(tmp_path: Path) -> None:
    series = a_series("local-burst", RUN, {**RUN, "p50_ms": 21.5})
    path = write(series, tmp_path)
    assert path.name == "local-burst.json"
    assert read_all(tmp_path) == {"local-burst": series}


def test_a_reason_for_no_target_is_a_mistake(tmp_path: Path) -> None:
    path = tmp_path / "why.toml"
    path.write_text('[burst-p5]\nwhy = "x"\n')
    with pytest.raises(NoPlace, match="burst-p5"):
        read_why(path)


def test_a_busy_machine_is_told() -> None:
    quiet, noisy = a_series("local-burst", RUN), a_series("local-burst", {**RUN, "busy_cores_before": 1.4})
    assert "busy machine" not in pages.readme(found(quiet), {})
    assert "other programs used 1.4 cores" in pages.readme(found(noisy), {})
    assert "busy machine" in pages.reference(found(noisy), {})


@pytest.mark.parametrize("page", [pages.readme, pages.reference])
def test_conditions_are_told(page: Callable[[dict[str, Series], dict[str, str]], str]) -> None:
    others = [{**RUN, "busy_cores_before": 0.25}]
    told = page(
        found(a_series("local-burst", RUN), a_series("local-crowd", RUN), a_series("kube-burst", RUN, go=others)), {}
    )
    (line,) = [line for line in told.splitlines() if line.startswith("- One machine")]
    for part in (
        "2 cores, 8 GiB",
        "Linux 6.0, CPython 3.11.7",
        "fsync on (ext4)",
        "load average before the first run 0.07",
    ):
        assert part in line, part
    assert "other programs before each run 0.05 cores, at most 0.05" in line
    (line,) = [line for line in told.splitlines() if line.startswith("- Kubernetes")]
    assert "at most 0.25" in line
    assert "Pods are fake" in told


def test_data_in_memory_is_told() -> None:
    series = a_series("local-burst", RUN)
    series.conditions = {**MACHINE, "fsync": False}
    assert "fsync means nothing here" in pages.readme(found(series), {})


def test_sides_and_their_ratios() -> None:
    others = {"go": [{**RUN, "p50_ms": 80.0, "conflicts": 7}], "floor": [{**RUN, "p50_ms": 16.0}]}
    text = pages.reference(found(a_series("kube-burst", RUN, **others)), {})
    assert "| Go controller, flags recommended by its guide | 1 | 300 of 300 | 80.0 |" in text
    assert "| p50 | Go controller, flags recommended by its guide | 0.25 |" in text
    assert "| p50 | floor: three writes, no controllers | 1.25 |" in text
    short = pages.readme(found(a_series("kube-burst", RUN, **others)), {})
    assert "| Go controller, flags recommended by its guide | 1 | 80.0 | 30.0 | 7 | 7 |" in short
    assert "| ours | 1 | 20.0 | 30.0 | 7 | 0 |" in short


def test_a_target_of_none_is_written_as_such() -> None:
    assert "conflicts in 5 bursts of 300 | 0 | 0 | 1 | reached |" in pages.readme(
        found(a_series("local-bursts", RUN)), {}
    )


def test_one_run_with_conflicts_shows() -> None:
    runs = [{**RUN, "conflicts": count} for count in (0, 0, 5)]
    text = pages.reference(found(a_series("local-bursts", *runs)), {})
    (row,) = [line for line in text.splitlines() if line.startswith("| the title of local-bursts | 3 |")]
    assert row.endswith("| 5 |")


def test_a_run_without_result_is_told() -> None:
    series = a_series("kube-burst", RUN)
    series.extra["failed_runs"] = {"go": ["the controller ended with 1", "again"]}
    text = pages.reference(found(series), {})
    assert "Runs that gave no result, Go controller, flags recommended by its guide: 2." in text


def test_pools_are_ordered_by_size_and_compared_with_the_smallest() -> None:
    big = {**RUN, "p50_ms": 22.0, "server_peak_bytes": 200 << 20}
    text = pages.reference(found(a_series("local-pool-1000", big), a_series("local-pool-100", RUN)), {})
    rows = [line for line in text.splitlines() if line.startswith(("| 100 |", "| 1,000 |"))]
    assert rows == ["| 100 | 1 | 20.0 | 30.0 | 1 | – | – |", "| 1,000 | 1 | 22.0 | 30.0 | 1.1 | – | 200 |"]


def test_without_results_it_says_so() -> None:
    assert pages.readme({}, {}) == pages.reference({}, {}) == "Nothing has been measured yet: `make bench` does it."


def test_order_alternates() -> None:
    assert [alternated("abc", repeat) for repeat in range(3)] == [list("abc"), list("cba"), list("abc")]
