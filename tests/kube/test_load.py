"""`sandpool load` on a real API server: what its audit log says and what our controller says of itself are the same counts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from support.kube import server as kube_server
from support.kube.process import Controller, controller
from support.kube.stage import Stage, a_stage
from support.product.cluster import sandpool

pytestmark = [pytest.mark.kube, pytest.mark.alone, pytest.mark.timeout(300)]


@pytest.fixture
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    if lacking := kube_server.lacking():
        pytest.skip(lacking)
    with a_stage(tmp_path_factory.mktemp("stage"), "load") as stage:
        yield stage


def load(stage: Stage, *flags: str) -> dict[str, Any]:
    command = ("load", "burst", "--claims", "20", "--pool-size", "40", "--image", "python:3.13", "-q", "-o", "json")
    found: dict[str, Any] = msgspec.json.decode(
        sandpool(*command, "--kubeconfig", str(stage.server.kubeconfig), *flags).stdout
    )
    return found


def metrics_page(process: Controller) -> str:
    (line,) = [line for line in process.lines("listening") if "/metrics" in line["pages"].split(",")]
    return f"http://{line['address']}/metrics"


def test_both_ways_to_count_agree(stage: Stage) -> None:
    with controller(stage.folder, stage.identity.kubeconfig) as process:
        process.wait_ready(leading=True)
        page = ("--metrics", metrics_page(process))
        told = load(stage, *page)
        audited = load(stage, *page, "--audit-log", str(stage.server.audit))
        neither = load(stage)
    for found in (told, audited):
        assert (found["ready"], found["failed"], found["warm_fraction"]) == (20, 0, 1.0)
        assert (found["conflicts"], found["not_found"], found["reconciles_per_claim"]) == (0, 0, 1.0)
        assert 7 <= found["writes_per_claim"] <= 9  # with the status of the pool, in which so few claims share
        assert found["left_behind"] == []
    assert audited["counted_from"] == "audit log"
    assert told["counted_from"] == page[1]
    for kind in ("patch sandboxes", "patch sandboxclaims/status", "create sandboxes", "create pods"):
        assert told["writes"]["controllers"][kind] == audited["writes"]["controllers"][kind] == 20
    for name in ("API server", page[1]):
        assert told["processes"][name]["cpu_s"] > 0
        assert told["processes"][name]["resident_bytes"] > 1 << 20
    assert neither["ready"] == 20
    assert neither["writes_per_claim"] is None
    assert "--metrics" in neither["not_told"]["writes"]
