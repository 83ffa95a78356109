"""The standard set with small numbers: it runs, its counts are right, and its tables can be made. Nothing is concluded from times."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from support.product.bench_root import ROOT

from bench import pages  # isort: skip
from sandpool.load.series import Series, read_all  # isort: skip


def quick(into: Path, *names: str, patience: float = 100) -> dict[str, Series]:
    only = ("--only", *names) if names else ()
    done = subprocess.run(
        [sys.executable, "-m", "bench.standard", "--quick", "--into", str(into), *only],
        cwd=ROOT,
        env={"PYTHONPATH": "tests", "PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": str(into)},
        capture_output=True,
        text=True,
        timeout=patience,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return read_all(into)


@pytest.mark.long
def test_a_burst_a_refill_and_a_rollout(tmp_path: Path) -> None:
    found = quick(tmp_path, "local-burst", "local-refill", "local-rollout")
    assert set(found) == {"local-burst", "local-refill", "local-rollout"}
    (burst,) = found["local-burst"].runs
    assert (burst["ready"], burst["failed"], burst["conflicts"]) == (10, 0, 0)
    assert burst["writes_per_claim"] <= 8
    assert found["local-refill"].runs[0]["took_s"] > 0
    (rolled,) = found["local-rollout"].runs
    assert (rolled["failed"], rolled["before"]["failed"]) == (0, 0)
    assert rolled["rollout_s"] > 0
    assert found["local-burst"].conditions["cores"] >= 1
    text = pages.reference(found, {})
    assert "| 10 claims at once on a pool of 20 | 1 | 10 of 10 |" in text
    assert "a pool from 0 to 10 members" in text


@pytest.mark.long
@pytest.mark.timeout(700)
@pytest.mark.root
def test_everything(tmp_path: Path) -> None:
    found = quick(tmp_path, patience=600)
    assert len(found) == 16
    for name, series in found.items():
        assert series.runs, name
        assert not series.runs[0].get("failed"), name
    (rate,) = found["local-rate"].runs
    assert rate["minutes"]
    for name in ("local-overload", "local-overload-real"):
        assert found[name].runs[0]["past"], name
    assert found["local-memory"].runs[0]["filled_bytes"]["20"] > 1 << 20
    assert found["local-first-output"].runs[0]["first_output_p50_ms"] > 0
    assert "### The highest rate" in pages.reference(found, {})
