"""Records each request in metrics, activity and the audit log: when the gate has decided, and when the request has ended."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from sandpool.base.clock import Clock
from sandpool.model.metadata import Key
from sandpool.router.activity import Activity
from sandpool.router.answers import Word
from sandpool.router.audit import LONGEST_WORD, Audit, Entry, NoAudit, moment, shown_path
from sandpool.router.values import Admitted, Answer, Outcome, Peer, Request
from sandpool.telemetry.router_metrics import NOWHERE, RouterMetrics
from sandpool.wire.paths import ROUTER_HEALTH

_UPSTREAM: Final = {"refused": "dial", "timeout": "timeout", "reset": "eof", "internal": "other"}
"""The contract's names for relay errors. A client that hung up, or a router that stops, is not an error of the sandbox."""


class RequestLog:
    """`holds` says whether a namespace may be a metric label."""

    def __init__(
        self,
        metrics: RouterMetrics,
        holds: Callable[[str], bool],
        clock: Clock,
        activity: Activity | None = None,
        audit: Audit = NoAudit(),
    ) -> None:
        self._metrics = metrics
        self._holds = holds
        self._clock = clock
        self._activity = activity
        self._audit = audit
        self._under_way: set[int] = (
            set()
        )  # requests by their identity: the server reports the end of each one, however far it came
        metrics.inflight.set_function(lambda: len(self._under_way))

    def begun(self, request: Request) -> None:
        self._under_way.add(id(request))

    def decided(self, decided: Admitted | Answer) -> None:
        if isinstance(decided, Admitted) and self._activity is not None:
            self._activity.begins(decided)
        if (decision := _decision(decided)) is not None:
            self._metrics.decisions.labels(self._namespace(_about(decided)), decision).inc()

    def finished(self, request: Request, peer: Peer, decided: Admitted | Answer, outcome: Outcome) -> None:
        self._under_way.discard(id(request))
        about = _about(decided)
        namespace = self._namespace(about)
        method = request.method.decode("latin-1")
        self._metrics.served(method, outcome.status, namespace, outcome.seconds)
        if isinstance(decided, Admitted):
            if outcome.error in _UPSTREAM:
                self._metrics.upstream_errors.labels(namespace, _UPSTREAM[outcome.error]).inc()
            if self._activity is not None:
                self._activity.ends(decided)
        elif request.path == ROUTER_HEALTH.encode():
            return  # health checks, every few seconds
        self._audit.note(
            Entry(
                time=moment(self._clock.now()),
                id=request.id[:LONGEST_WORD],
                who=decided.caller[:LONGEST_WORD],
                from_=peer.address[:LONGEST_WORD],
                method=method[:LONGEST_WORD],
                path=shown_path(request.path),
                namespace=about.namespace if about is not None else "",
                sandbox=about.name if about is not None else "",
                port=decided.port if isinstance(decided, Admitted) else None,
                status=outcome.status,
                received=outcome.received,
                sent=outcome.sent,
                milliseconds=round(outcome.seconds * 1000, 3),
                error=outcome.error[:LONGEST_WORD],
            )
        )

    def _namespace(self, about: Key | None) -> str:
        return about.namespace if about is not None and self._holds(about.namespace) else NOWHERE


def _about(decided: Admitted | Answer) -> Key | None:
    if isinstance(decided, Admitted):
        return Key(decided.target.namespace, decided.target.name)
    return decided.about


def _decision(decided: Admitted | Answer) -> str | None:
    """The label of the authorization metric; None: no decision was needed, or the refusal has another cause."""
    if isinstance(decided, Admitted):
        return "allow"
    if decided.body.get("code") == Word.UNAVAILABLE:
        return "error"
    return {401: "unauthenticated", 403: "deny"}.get(decided.status)
