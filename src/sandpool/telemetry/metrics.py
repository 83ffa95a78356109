"""Every metric of this program. Metrics whose values are read at each scrape are in families.py, those of a router in router_metrics.py.

A `Metrics` owns its registry, so that two parts of one process (or two tests) never share counts. Labels take their values
from closed sets; combinations known beforehand start at 0, so that graphs have no holes. The only names of objects in labels
are those of pools, their templates and their namespaces: a bounded number, gone when the object is. Names that start with
`agent_sandbox` are those of the public contract, with its labels and buckets.
"""

from __future__ import annotations

import platform
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample

from sandpool.telemetry.families import Reader, Share, of_shares
from sandpool.version import __version__

FAST = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
"""Buckets in seconds for what should take milliseconds."""
READY = (
    *(0.0005, 0.001, 0.002, 0.003, 0.004, 0.005, 0.006, 0.007, 0.008, 0.009, 0.01, 0.015, 0.02, 0.03, 0.05),
    *(0.075, 0.1, 0.15, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0),
)
"""Buckets in seconds for how long a claim waits: one for each millisecond where a warm one should end."""
CONTRACT_CLAIM_MS = (100, 250, 500, 750, 1000, 1250, 1500, 2000, 2500, 5000, 10000, 30000, 60000, 120000, 240000)
CONTRACT_CREATION_MS = (50, 100, 250, 500, 1000, 2500, 5000, 10000, 30000, 60000, 120000, 240000, 300000, 600000)
SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)

OUTCOMES = ("done", "again", "unobserved", "conflict", "terminal", "throttled", "timeout", "error")
"""How a reconcile can end: one value for each arm in loop/controller.py."""

CONTENT_TYPE = CONTENT_TYPE_LATEST


class Timings(Histogram):
    """A histogram that finds its bucket by bisection: several values are observed for every write."""

    def observe(self, amount: float, exemplar: dict[str, str] | None = None) -> None:
        self._sum.inc(amount)
        self._buckets[bisect_left(self._upper_bounds, amount)].inc(1)


class Metrics:
    """Counts and durations. Attributes are grouped by the part that writes them."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._declare_server()
        self._declare_client()
        self._declare_loop()
        self._declare_product()
        self._requests: dict[tuple[str, str, str], tuple[Counter, Histogram]] = {}
        self._calls: dict[tuple[str, str, str], tuple[Counter, Histogram]] = {}
        self.shares: dict[str, Share] = {}  # by resource; filled by the owner of each
        self.show(lambda: of_shares(self.shares))

    def _declare_server(self) -> None:
        r = self.registry
        self.server_requests = Counter(
            "sandpool_apiserver_requests", "Requests answered.", ["verb", "resource", "code"], registry=r
        )
        self.server_seconds = Timings(
            "sandpool_apiserver_request_seconds",
            "From the request's last byte to the answer's.",
            ["verb", "resource"],
            buckets=FAST,
            registry=r,
        )
        self.server_watches = Gauge("sandpool_apiserver_watches", "Watches being served.", ["resource"], registry=r)
        self.store_commits = Counter("sandpool_store_commits", "Transactions made durable.", registry=r)
        self.store_batch = Timings(
            "sandpool_store_commit_writes", "Writes that shared one commit.", buckets=SIZES, registry=r
        )
        self.store_seconds = Timings(
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
        self.client_seconds = Timings(
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
        self.queue_seconds = Timings(
            "sandpool_queue_wait_seconds", "Time a key waited for a worker.", ["controller"], buckets=FAST, registry=r
        )
        self.reconciles = Counter(
            "sandpool_reconciles", "Reconciles by how they ended.", ["controller", "outcome"], registry=r
        )
        self.reconcile_seconds = Timings(
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

    def _declare_product(self) -> None:
        r = self.registry
        self.claim_seconds = Timings(
            "sandpool_claim_ready_seconds",
            "From the moment a claim is first seen until it is Ready.",
            ["namespace", "pool", "launch_type"],
            buckets=READY,
            registry=r,
        )
        by_template = ["launch_type", "sandbox_template"]
        self.claim_startup, self.claim_controller_startup, self.claim_client_startup = (
            Timings(f"agent_sandbox_{name}_latency_ms", text, by_template, buckets=CONTRACT_CLAIM_MS, registry=r)
            for name, text in (
                ("claim_startup", "From a claim's admission until it is first Ready."),
                ("claim_controller_startup", "From a claim's first sight until it is first Ready."),
                ("client_claim_startup", "From a client's request until its claim is first Ready."),
            )
        )
        self.creation = Timings(
            "agent_sandbox_creation_latency_ms",
            "From a sandbox's first sight until it is first Ready.",
            ["namespace", *by_template],
            buckets=CONTRACT_CREATION_MS,
            registry=r,
        )
        build = ("git_version", "git_commit", "build_date", "go_version", "compiler", "platform")
        built = (f"v{__version__}", "", "", "", f"python{platform.python_version()}", f"linux/{platform.machine()}")
        Gauge("agent_sandbox_build_info", "What runs here.", build, registry=r).labels(*built).set(1)

    def show(self, read: Reader) -> None:
        """From now on each scrape also shows what `read` returns."""
        self.registry.register(_Shown(read))

    def show_process(self) -> None:
        """From now on each scrape also shows what this process uses, as `process_…` with the names of all Prometheus clients."""
        ProcessCollector(registry=self.registry)

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


class _Shown(Collector):
    def __init__(self, read: Reader) -> None:
        self._read = read

    def collect(self) -> Iterator[Metric]:
        for family, values in self._read():
            kind = CounterMetricFamily if family.counter else GaugeMetricFamily
            shown = kind(family.name, family.help, labels=family.labels)
            for labels, value in values.items():
                shown.add_metric(labels, value)
            yield shown


_Series = tuple[str, tuple[tuple[str, str], ...]]


def exposed(several: Sequence[Metrics]) -> bytes:
    return several[0].expose() if len(several) == 1 else generate_latest(_Merged(several))


class _Merged(Collector):
    def __init__(self, several: Sequence[Metrics]) -> None:
        self._several = several

    def collect(self) -> Iterator[Metric]:
        families: dict[str, Metric] = {}
        samples: dict[str, dict[_Series, Sample]] = {}
        for metrics in self._several:
            for family in metrics.registry.collect():
                families.setdefault(family.name, Metric(family.name, family.documentation, family.type))
                known = samples.setdefault(family.name, {})
                for sample in family.samples:
                    series = (sample.name, tuple(sorted(sample.labels.items())))
                    known[series] = _sum(known[series], sample) if series in known else sample
        for name, family in families.items():
            family.samples = list(samples[name].values())
            yield family


def _sum(one: Sample, other: Sample) -> Sample:
    if one.name.endswith("_created"):  # a moment: since when it is counted
        return one._replace(value=min(one.value, other.value))
    if one.name.endswith("_info"):
        return one
    return one._replace(value=one.value + other.value)


class Series:
    """Caches label look-ups of histograms: prometheus_client checks names and values of labels at every one. Call `forget` when a series is
    removed: a cached one would count without being shown."""

    def __init__(self) -> None:
        self._known: dict[tuple[Histogram, tuple[str, ...]], Histogram] = {}

    def of(self, histogram: Histogram, *values: str) -> Histogram:
        found = self._known.get((histogram, values))
        if found is None:
            found = self._known[histogram, values] = histogram.labels(*values)
        return found

    def forget(self) -> None:
        self._known.clear()
