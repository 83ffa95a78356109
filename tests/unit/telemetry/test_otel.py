"""Spans as OpenTelemetry records them. What needs the packages is left out where they are not installed."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from sandpool.telemetry.otel import OtelTracer, open_tracer
from sandpool.telemetry.trace import of_uid

PARENT = of_uid("claim-uid")


def test_nothing_is_opened_unless_somebody_asks() -> None:
    assert open_tracer(environment={}) is None
    assert open_tracer("http://127.0.0.1:4318", environment={"OTEL_SDK_DISABLED": "TRUE"}) is None


def test_importing_it_costs_nothing() -> None:
    code = (
        "import sys, sandpool.telemetry.otel; sys.exit(any(name.startswith('opentelemetry') for name in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_without_the_packages_the_message_says_what_to_do() -> None:
    code = (
        "import sys; sys.modules['opentelemetry'] = None\n"
        "from sandpool.telemetry.otel import TracingUnavailable, open_tracer\n"
        "try: open_tracer('http://127.0.0.1:4318', environment={})\n"
        "except TracingUnavailable as error: print(error)"
    )
    said = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    assert "install sandpool[otel]" in said
    assert "--otlp-endpoint" in said


@pytest.fixture
def recorded() -> Iterator[tuple[OtelTracer, Any]]:
    pytest.importorskip("opentelemetry.sdk.trace", reason="the extra `otel` is not installed")
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    exporter = InMemorySpanExporter()
    tracer = open_tracer(environment={}, exporter=exporter, instance="7")
    assert tracer is not None
    yield tracer, exporter
    tracer.close()


def test_spans_continue_the_parent_and_nest(recorded: tuple[OtelTracer, Any]) -> None:
    tracer, exporter = recorded
    with (
        tracer.span("ReconcileSandboxClaim", parent=PARENT, key=("default", "c")),
        tracer.span("patch sandboxes", object="s"),
    ):
        pass
    inner, outer = exporter.get_finished_spans()
    assert (outer.name, inner.name) == ("ReconcileSandboxClaim", "patch sandboxes")
    assert outer.context.trace_id == inner.context.trace_id == PARENT.trace_id
    assert outer.parent.span_id == PARENT.span_id
    assert outer.parent.is_remote
    assert inner.parent.span_id == outer.context.span_id
    assert dict(outer.attributes) == {"key": "('default', 'c')"}
    assert outer.resource.attributes["service.name"] == "sandpool"


def test_a_failure_is_on_the_span(recorded: tuple[OtelTracer, Any]) -> None:
    tracer, exporter = recorded
    with pytest.raises(ValueError, match="bad"), tracer.span("reconcile"):
        raise ValueError("bad")
    (span,) = exporter.get_finished_spans()
    assert span.status.status_code.name == "ERROR"
    assert [event.name for event in span.events] == ["exception"]


def test_a_parent_that_is_not_sampled_is_not_recorded(recorded: tuple[OtelTracer, Any]) -> None:
    tracer, exporter = recorded
    with tracer.span("reconcile", parent=PARENT._replace(flags=0, state="a=1")):
        pass
    assert exporter.get_finished_spans() == ()
