from __future__ import annotations

import subprocess
import sys

from sandpool.base.shares import OPERATOR, Shares
from sandpool.telemetry.families import POOL_HITS, POOL_READY
from sandpool.telemetry.metrics import READY, Metrics
from sandpool.telemetry.trace import NullTracer

CLAIM_MS = [100, 250, 500, 750, 1000, 1250, 1500, 2000, 2500, 5000, 10000, 30000, 60000, 120000, 240000]
CREATION_MS = [50, 100, 250, 500, 1000, 2500, 5000, 10000, 30000, 60000, 120000, 240000, 300000, 600000]


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
        assert family.name.startswith(("sandpool_", "agent_sandbox_"))
        assert family.documentation.endswith(".") or "; 0 unless" in family.documentation, family.name


def test_the_contract_has_its_names_labels_and_buckets() -> None:
    metrics = Metrics()
    contract = {
        metrics.claim_startup: ("agent_sandbox_claim_startup_latency_ms", CLAIM_MS, False),
        metrics.claim_controller_startup: ("agent_sandbox_claim_controller_startup_latency_ms", CLAIM_MS, False),
        metrics.claim_client_startup: ("agent_sandbox_client_claim_startup_latency_ms", CLAIM_MS, False),
        metrics.creation: ("agent_sandbox_creation_latency_ms", CREATION_MS, True),
    }
    for histogram, (name, buckets, with_namespace) in contract.items():
        labels = {"launch_type": "warm", "sandbox_template": "t"} | ({"namespace": "n"} if with_namespace else {})
        histogram.labels(**labels).observe(1)
        found = [s.labels["le"] for m in histogram.collect() for s in m.samples if s.name == f"{name}_bucket"]
        assert [float(le) for le in found[:-1]] == buckets
    assert b"agent_sandbox_build_info{" in metrics.expose()


def test_the_wait_for_a_claim_is_resolved_to_a_millisecond() -> None:
    assert READY[0] == 0.0005
    assert READY[-1] == 60
    assert {round(n / 1000, 3) for n in range(1, 11)} <= set(READY)
    assert list(READY) == sorted(set(READY))


def test_values_that_are_kept_elsewhere_are_read_at_each_scrape() -> None:
    metrics = Metrics()
    counts: dict[tuple[str, ...], float] = {("n", "p"): 3}
    metrics.show(lambda: [(POOL_READY, counts), (POOL_HITS, {("n", "p"): 7})])
    read, labels = metrics.registry.get_sample_value, {"namespace": "n", "pool": "p"}
    assert read("sandpool_pool_ready", labels) == 3
    assert read("sandpool_pool_hits_total", labels) == 7
    counts.clear()
    assert read("sandpool_pool_ready", labels) is None


def test_logs_stories_and_traces_do_not_import_the_metrics_library() -> None:
    code = (
        "import sys, sandpool.telemetry, sandpool.telemetry.log, sandpool.telemetry.reconcile_history, sandpool.telemetry.trace;"
        "sys.exit('prometheus_client' in sys.modules or 'asyncio' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_the_null_tracer_gets_out_of_the_way() -> None:
    with NullTracer().span("reconcile", key="ns/a"):
        pass


def test_what_tenants_share_is_shown_by_resource_and_names_no_tenant() -> None:
    metrics = Metrics()
    assert b"sandpool_share" not in metrics.expose()
    shares = metrics.shares["watches"] = Shares(10)
    shares.take("secret-tenant", 9)
    shares.take(OPERATOR, 2)
    shares.fits("secret-tenant", 5)
    text = metrics.expose().decode()
    for line in ("total", "used", "operator", "tenants", "refusals_total", "revocations_total"):
        assert f'sandpool_share_{line}{{resource="watches"}} ' in text
    assert 'sandpool_share_used{resource="watches"} 9.0' in text
    assert "secret-tenant" not in text
