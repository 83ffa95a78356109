"""Every metric of this program, declared here and nowhere else.

A `Metrics` owns its registry, so that two parts of one process (or two tests) never share counts. Labels take their values
from closed sets; combinations known beforehand start at 0, so that graphs have no holes. Nothing is labelled by object name.
"""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

FAST = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
"""Buckets in seconds for what should take milliseconds."""
SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)

OUTCOMES = ("done", "again", "unobserved", "conflict", "terminal", "throttled", "timeout", "error")
"""How a reconcile can end: one value for each arm in loop/controller.py."""

CONTENT_TYPE = CONTENT_TYPE_LATEST


class Metrics:
    """Counts and durations. Attributes are grouped by the part that writes them."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._declare_server()
        self._declare_client()
        self._declare_loop()
        self._requests: dict[tuple[str, str, str], tuple[Counter, Histogram]] = {}
        self._calls: dict[tuple[str, str, str], tuple[Counter, Histogram]] = {}

    def _declare_server(self) -> None:
        r = self.registry
        self.server_requests = Counter(
            "sandpool_apiserver_requests", "Requests answered.", ["verb", "resource", "code"], registry=r
        )
        self.server_seconds = Histogram(
            "sandpool_apiserver_request_seconds",
            "From the request's last byte to the answer's.",
            ["verb", "resource"],
            buckets=FAST,
            registry=r,
        )
        self.server_watches = Gauge("sandpool_apiserver_watches", "Watches being served.", ["resource"], registry=r)
        self.store_commits = Counter("sandpool_store_commits", "Transactions made durable.", registry=r)
        self.store_batch = Histogram(
            "sandpool_store_commit_writes", "Writes that shared one commit.", buckets=SIZES, registry=r
        )
        self.store_seconds = Histogram(
            "sandpool_store_commit_seconds", "Time of one commit, sync included.", buckets=FAST, registry=r
        )

    def _declare_client(self) -> None:
        r = self.registry
        self.client_requests = Counter(
            "sandpool_client_requests",
            "Calls to an API server: ok, or the reason of its answer.",
            ["verb", "resource", "outcome"],
            registry=r,
        )
        self.client_seconds = Histogram(
            "sandpool_client_request_seconds", "Time of a call.", ["verb", "resource"], buckets=FAST, registry=r
        )
        self.cache_objects = Gauge("sandpool_cache_objects", "Objects held in a cache.", ["resource"], registry=r)
        self.cache_lists = Counter(
            "sandpool_cache_lists", "Times a cache was filled by a list, the first included.", ["resource"], registry=r
        )
        self.cache_failures = Counter(
            "sandpool_cache_failures", "Lists or watches that failed and were tried again.", ["resource"], registry=r
        )

    def _declare_loop(self) -> None:
        r = self.registry
        self.queue_depth = Gauge("sandpool_queue_depth", "Keys waiting for a worker.", ["controller"], registry=r)
        self.queue_seconds = Histogram(
            "sandpool_queue_wait_seconds", "Time a key waited for a worker.", ["controller"], buckets=FAST, registry=r
        )
        self.reconciles = Counter(
            "sandpool_reconciles", "Reconciles by how they ended.", ["controller", "outcome"], registry=r
        )
        self.reconcile_seconds = Histogram(
            "sandpool_reconcile_seconds", "Time of one reconcile.", ["controller"], buckets=FAST, registry=r
        )
        self.busy_workers = Gauge("sandpool_busy_workers", "Workers inside a reconcile.", ["controller"], registry=r)
        self.leader = Gauge("sandpool_leader", "1 while this process holds the lease.", ["lease"], registry=r)
        self.repairs = Counter(
            "sandpool_repairs",
            "What an audit found wrong in memory and put right; 0 unless there is a bug.",
            ["what"],
            registry=r,
        )
        self.events = Counter("sandpool_events", "Events by what became of them.", ["outcome"], registry=r)
        for outcome in ("created", "counted", "limited", "dropped", "failed"):
            self.events.labels(outcome)

    def declare_controller(self, controller: str) -> None:
        """Writes 0 for everything that this controller will count."""
        for outcome in OUTCOMES:
            self.reconciles.labels(controller, outcome)
        for gauge in (self.queue_depth, self.busy_workers):
            gauge.labels(controller).set(0)

    def declare_repairs(self, kinds: Iterable[str]) -> None:
        for kind in kinds:
            self.repairs.labels(kind)

    def served(self, verb: str, resource: str, code: int, seconds: float) -> None:
        """One request answered. The label look-ups are remembered: this runs for every request."""
        label = (verb, resource, str(code))
        found = self._requests.get(label)
        if found is None:
            found = self._requests[label] = (
                self.server_requests.labels(*label),
                self.server_seconds.labels(verb, resource),
            )
        found[0].inc()
        found[1].observe(seconds)

    def called(self, verb: str, resource: str, outcome: str, seconds: float) -> None:
        """One call to an API server, ended in `ok` or in a reason such as `Conflict`."""
        label = (verb, resource, outcome)
        found = self._calls.get(label)
        if found is None:
            found = self._calls[label] = (
                self.client_requests.labels(*label),
                self.client_seconds.labels(verb, resource),
            )
        found[0].inc()
        found[1].observe(seconds)

    def committed(self, writes: int, seconds: float) -> None:
        self.store_commits.inc()
        self.store_batch.observe(writes)
        self.store_seconds.observe(seconds)

    def expose(self) -> bytes:
        """The text that a scraper reads; its content type is CONTENT_TYPE."""
        return generate_latest(self.registry)
