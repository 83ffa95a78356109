"""The metrics of a router, with the names, labels and buckets of the public contract. Part of the registry that is shown with them.

Labels take their values from closed sets: methods and codes that HTTP knows, and namespaces in which there is a sandbox.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 180.0)
METHODS: Final = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "CONNECT", "TRACE"})
CODES: Final = frozenset({*(int(status) for status in HTTPStatus), 499})
"""499: the client hung up before there was an answer."""
NOWHERE: Final = "-"
"""The namespace of requests for none that is known."""
DECISIONS: Final = ("allow", "unauthenticated", "deny", "error")
REASONS: Final = ("dial", "timeout", "eof", "other")


class RouterMetrics:
    """The counters and histograms that a router updates."""

    def __init__(self, registry: CollectorRegistry) -> None:
        by_request = ["method", "code", "sandbox_namespace"]
        self.requests = Counter("sandbox_router_requests", "Requests by how they ended.", by_request, registry=registry)
        self.seconds = Histogram(
            "sandbox_router_request_duration_seconds",
            "From a request's head to the end of its answer, or of the connection that it became.",
            by_request,
            buckets=SECONDS,
            registry=registry,
        )
        self.inflight = Gauge("sandbox_router_inflight_requests", "Requests under way.", registry=registry)
        self.upstream_errors = Counter(
            "sandbox_router_upstream_errors",
            "Requests that a sandbox did not answer as it should.",
            ["sandbox_namespace", "reason"],
            registry=registry,
        )
        self.decisions = Counter(
            "sandbox_router_authz_decisions",
            "Whether a caller was let through to a sandbox.",
            ["sandbox_namespace", "decision"],
            registry=registry,
        )
        self.cert_reloads = Counter(
            "sandbox_router_cert_reloads",
            "Times that a certificate was read again because its file had changed.",
            ["outcome"],
            registry=registry,
        )
        for outcome in ("success", "failure"):
            self.cert_reloads.labels(outcome)
        for decision in DECISIONS:
            self.decisions.labels(NOWHERE, decision)
        for reason in REASONS:
            self.upstream_errors.labels(NOWHERE, reason)
        self._known: dict[tuple[str, str, str], tuple[Counter, Histogram]] = {}

    def served(self, method: str, code: int, namespace: str, seconds: float) -> None:
        """One request ended. The label look-ups are remembered: this runs for every request."""
        label = (
            method if method in METHODS else "OTHER",
            str(code) if code in CODES else f"{code // 100 % 10}xx",
            namespace,
        )
        found = self._known.get(label)
        if found is None:
            found = self._known[label] = (self.requests.labels(*label), self.seconds.labels(*label))
        found[0].inc()
        found[1].observe(seconds)
