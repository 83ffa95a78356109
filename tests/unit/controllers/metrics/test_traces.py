"""The spans of one claim belong to one trace."""

from __future__ import annotations

from typing import Any

import pytest

from sandpool.controllers.metrics.traces import in_context
from sandpool.loop.cache import Cache
from sandpool.model import labels
from sandpool.model.kinds import TEMPLATES
from sandpool.telemetry.trace import Context, NullTracer, Tracer, of_annotation, of_uid
from support.api.span_recorder import SpanRecorder
from support.simulated.measured_world import World, key, owner

CONTEXT = '{"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}'


@pytest.fixture
def world() -> World:
    return World()


def tracer_of(world: World, tracer: Tracer) -> Tracer:
    return in_context(tracer, world.claims, world.sandboxes, world.pools, Cache(TEMPLATES))


def parent(world: World, controller: str, name: str) -> tuple[str, Context | None]:
    recorder = SpanRecorder()
    with tracer_of(world, recorder).span("reconcile", controller=controller, key=key(name)):
        pass
    (span,) = recorder.spans
    assert span.attributes == {"controller": controller, "key": key(name)}
    return span.name, span.parent


@pytest.mark.parametrize("note", [{}, {labels.TRACE_CONTEXT: CONTEXT}, {labels.TRACE_CONTEXT: "nonsense"}])
def test_a_claim_and_its_sandbox_share_a_trace(world: World, note: dict[str, str]) -> None:
    claim = world.claim("c", annotations=note)
    world.handed(claim, "s")
    expected = of_annotation(note.get(labels.TRACE_CONTEXT)) or of_uid("c-uid")
    assert parent(world, "claim", "c") == ("ReconcileSandboxClaim", expected)
    assert parent(world, "sandbox", "s") == ("ReconcileSandbox", expected)


def test_what_the_transfer_copied_counts_also_when_the_claim_is_gone(world: World) -> None:
    claim = world.claim("c", annotations={labels.TRACE_CONTEXT: CONTEXT})
    marks: dict[str, Any] = {"owners": [owner(claim)], "annotations": {labels.TRACE_CONTEXT: CONTEXT}}
    world.sandbox("s", **marks)
    world.drop(world.claims, claim)
    assert parent(world, "sandbox", "s")[1] == of_annotation(CONTEXT)


def test_an_unclaimed_sandbox_a_pool_and_what_is_gone(world: World) -> None:
    world.pool("p")
    world.sandbox("s")
    world.sandbox("forged", owners=[{**owner(world.claim("c")), "uid": "made-up"}])
    assert parent(world, "sandbox", "s")[1] == of_uid("s-uid")
    assert parent(world, "sandbox", "forged")[1] == of_uid("forged-uid")
    assert parent(world, "pool", "p") == ("ReconcileSandboxWarmPool", of_uid("default-p-uid"))
    assert parent(world, "claim", "never") == ("ReconcileSandboxClaim", None)
    assert parent(world, "kubelet", "s") == ("reconcile", None)


def test_off_stays_off(world: World) -> None:
    off = NullTracer()
    assert tracer_of(world, off) is off
