from __future__ import annotations

import subprocess
import sys

from sandpool.telemetry.metrics import Metrics
from sandpool.telemetry.trace import NullTracer


def test_two_sets_of_metrics_share_nothing() -> None:
    one, two = Metrics(), Metrics()
    one.store_commits.inc()
    assert one.registry.get_sample_value("sandpool_store_commits_total") == 1
    assert two.registry.get_sample_value("sandpool_store_commits_total") == 0


def test_requests_calls_and_commits_are_counted_with_their_time() -> None:
    metrics = Metrics()
    for _ in range(2):
        metrics.served("PATCH", "pods", 200, 0.002)
    metrics.called("patch", "pods", "Conflict", 0.004)
    metrics.committed(17, 0.001)
    read = metrics.registry.get_sample_value
    assert read("sandpool_apiserver_requests_total", {"verb": "PATCH", "resource": "pods", "code": "200"}) == 2
    assert read("sandpool_apiserver_request_seconds_sum", {"verb": "PATCH", "resource": "pods"}) == 0.004
    assert read("sandpool_client_requests_total", {"verb": "patch", "resource": "pods", "outcome": "Conflict"}) == 1
    assert read("sandpool_store_commit_writes_sum") == 17
    assert b"sandpool_store_commit_seconds_bucket" in metrics.expose()


def test_known_labels_start_at_zero() -> None:
    metrics = Metrics()
    metrics.declare_repairs(["member", "owner"])
    metrics.declare_controller("claim")
    read = metrics.registry.get_sample_value
    assert read("sandpool_repairs_total", {"what": "owner"}) == 0
    assert read("sandpool_reconciles_total", {"controller": "claim", "outcome": "error"}) == 0
    assert read("sandpool_queue_depth", {"controller": "claim"}) == 0
    assert read("sandpool_events_total", {"outcome": "dropped"}) == 0


def test_every_metric_is_ours_and_explained() -> None:
    for family in Metrics().registry.collect():
        assert family.name.startswith("sandpool_")
        assert family.documentation.endswith(".") or "; 0 unless" in family.documentation, family.name


def test_logs_stories_and_traces_do_not_import_the_metrics_library() -> None:
    code = (
        "import sys, sandpool.telemetry, sandpool.telemetry.log, sandpool.telemetry.story, sandpool.telemetry.trace;"
        "sys.exit('prometheus_client' in sys.modules or 'asyncio' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_the_null_tracer_gets_out_of_the_way() -> None:
    with NullTracer().span("reconcile", key="ns/a"):
        pass
