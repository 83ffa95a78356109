"""One trace for one claim: reconciles of a claim and of its sandbox continue the same context, whoever makes them.

The context is what the object's annotation says; failing that, of a claimed sandbox that of its claim, and else one made from
the uid. So nothing has to be written for the spans of one claim to find each other.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TypeVar

from sandpool.controllers.metrics.sandboxes import claim_of
from sandpool.loop.cache import Cache
from sandpool.model import labels
from sandpool.model.claim import SandboxClaim
from sandpool.model.metadata import Key, Object
from sandpool.model.pool import SandboxWarmPool
from sandpool.model.sandbox import Sandbox
from sandpool.model.template import SandboxTemplate
from sandpool.telemetry.trace import Context, NullTracer, Tracer, of_annotation, of_uid

T = TypeVar("T", bound=Object)


@dataclass(frozen=True, slots=True)
class _Kind:
    span: str
    context: Callable[[Key], Context | None]


class InContext:
    """A Tracer that gives the span of a reconcile its name and its parent."""

    def __init__(
        self,
        tracer: Tracer,
        claims: Cache[SandboxClaim],
        sandboxes: Cache[Sandbox],
        pools: Cache[SandboxWarmPool],
        templates: Cache[SandboxTemplate],
    ) -> None:
        def of_sandbox(sandbox: Sandbox) -> Context:
            owner, meta = claim_of(sandbox), sandbox.metadata
            claim = None if owner is None else claims.get(Key(meta.namespace, owner.name))
            if owner is None or claim is None or claim.metadata.uid != owner.uid:
                return context_of(sandbox)
            return of_annotation(meta.annotations.get(labels.TRACE_CONTEXT)) or context_of(claim)

        self._tracer = tracer
        self._kinds = {
            "claim": _Kind("ReconcileSandboxClaim", _within(claims, context_of)),
            "sandbox": _Kind("ReconcileSandbox", _within(sandboxes, of_sandbox)),
            "pool": _Kind("ReconcileSandboxWarmPool", _within(pools, context_of)),
            "template": _Kind("ReconcileSandboxTemplate", _within(templates, context_of)),
        }

    def span(self, name: str, *, parent: Context | None = None, **attributes: object) -> AbstractContextManager[object]:
        kind, key = self._kinds.get(str(attributes.get("controller"))), attributes.get("key")
        if kind is not None and isinstance(key, Key):
            name, parent = kind.span, parent or kind.context(key)
        return self._tracer.span(name, parent=parent, **attributes)


def in_context(
    tracer: Tracer,
    claims: Cache[SandboxClaim],
    sandboxes: Cache[Sandbox],
    pools: Cache[SandboxWarmPool],
    templates: Cache[SandboxTemplate],
) -> Tracer:
    """The tracer for controllers on these caches. Tracing that is off stays as cheap as it was."""
    return tracer if isinstance(tracer, NullTracer) else InContext(tracer, claims, sandboxes, pools, templates)


def context_of(obj: Object) -> Context:
    meta = obj.metadata
    return of_annotation(meta.annotations.get(labels.TRACE_CONTEXT)) or of_uid(meta.uid)


def _within(cache: Cache[T], context: Callable[[T], Context]) -> Callable[[Key], Context | None]:
    def look(key: Key) -> Context | None:
        obj = cache.get(key)
        return None if obj is None else context(obj)

    return look
