"""The comparison on a real API server, with small numbers, for our controllers and for the floor: what it counts is what there was."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from support.kube import server as kube_server
from support.product.bench_root import ROOT

from bench import pages  # isort: skip
from bench.contenders import GO  # isort: skip
from sandpool.load.series import read_all  # isort: skip
from kube import build  # isort: skip

pytestmark = [pytest.mark.kube, pytest.mark.alone, pytest.mark.timeout(300)]


def measure(into: Path, *flags: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "bench.kube", *flags, "--into", str(into)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": "tests"},
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_ours_and_the_floor(tmp_path: Path) -> None:
    if lacking := kube_server.lacking():
        pytest.skip(lacking)
    small = (
        "--claims",
        "5",
        "--bursts",
        "2",
        "--repeats",
        "1",
        "--hold",
        "1",
        "--past",
        "1",
        "--sides",
        "ours",
        "floor",
    )
    measure(tmp_path, *small)
    found = read_all(tmp_path)
    assert {name: set(series.sides) for name, series in found.items()} == {
        "kube-burst": {"ours", "floor"},
        "kube-bursts": {"ours"},
        "kube-overload": {"ours"},
    }
    (ours,), (floor,) = found["kube-burst"].sides["ours"], found["kube-burst"].sides["floor"]
    assert (ours["ready"], ours["failed"], ours["conflicts"], ours["warm_fraction"]) == (5, 0, 0, 1.0)
    assert 7 <= ours["writes_per_claim"] <= 9  # with the status of the pool, in which so few claims share
    assert ours["counted_from"] == "audit log"
    assert (floor["ready"], floor["conflicts"], floor["writes_per_claim"]) == (5, 0, 3.0)
    assert floor["writes"]["controllers"] == {
        "create sandboxclaims": 5,
        "patch sandboxclaims/status": 5,
        "patch sandboxes": 5,
    }
    (bursts,) = found["kube-bursts"].runs
    assert (bursts["claims"], bursts["ready"], bursts["conflicts"]) == (10, 10, 0)
    assert len(bursts["refills_s"]) == 2
    assert found["kube-burst"].conditions["fsync"] is True
    assert found["kube-burst"].conditions["leader_election"] is False
    assert "floor: three writes, no controllers" in pages.reference(found, {})


def test_the_go_controller_with_definitions_of_its_own(tmp_path: Path) -> None:
    if lacking := kube_server.lacking():
        pytest.skip(lacking)
    if build.find(build.RIVAL) is None or build.definitions() is None:
        pytest.skip(f"not built: python tests/kube/build.py {build.RIVAL}")
    small = ("--claims", "5", "--bursts", "1", "--repeats", "1", "--sides", GO)
    measure(tmp_path, *small)
    series = read_all(tmp_path)["kube-burst"]
    (run,) = series.sides[GO]
    assert (run["ready"], run["failed"], run["warm_fraction"]) == (5, 0, 1.0)
    assert series.conditions["go_controller"] == f"{build.RIVAL_MODULE} {build.AGENT_SANDBOX}"
