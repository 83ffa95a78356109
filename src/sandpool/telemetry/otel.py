"""Spans to OpenTelemetry. The packages are optional (`sandpool[otel]`) and imported only when a tracer is opened.

Configured by the standard OTEL_* variables; the endpoint may also be given. `open_tracer` returns None when tracing is not
configured. Spans are exported in batches by a thread of the library; `close` sends what is left.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from importlib import import_module
from typing import Any

from sandpool.telemetry.trace import Context

SERVICE = "sandpool"
EXTRA = "sandpool[otel]"
PATH = "/v1/traces"
ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")


class TracingUnavailable(Exception):
    """Tracing was requested and is not available; the message says what to do."""


class OtelTracer:
    """A Tracer (telemetry/trace.py) on a provider of OpenTelemetry."""

    def __init__(self, provider: Any) -> None:
        self._api = _need("opentelemetry.trace")
        self._provider = provider
        self._tracer = provider.get_tracer(SERVICE)

    def span(self, name: str, *, parent: Context | None = None, **attributes: object) -> AbstractContextManager[object]:
        context = None if parent is None else self._context(parent)
        values = {key: _plain(value) for key, value in attributes.items()}
        span: AbstractContextManager[object] = self._tracer.start_as_current_span(
            name, context=context, attributes=values
        )
        return span

    def close(self) -> None:
        """Sends what is left and ends the exporter."""
        self._provider.shutdown()

    def _context(self, parent: Context) -> Any:
        api = self._api
        state = api.TraceState.from_header([parent.state]) if parent.state else None
        place = api.SpanContext(parent.trace_id, parent.span_id, True, api.TraceFlags(parent.flags), state)
        return api.set_span_in_context(api.NonRecordingSpan(place))


def open_tracer(
    endpoint: str = "", *, environment: Mapping[str, str], instance: str = "", exporter: Any = None
) -> OtelTracer | None:
    """A tracer that exports over OTLP/HTTP: to `endpoint` (the base URL of a collector), else to where the environment says.
    None if neither is set, or OTEL_SDK_DISABLED is true. `exporter`: another one, for tests."""
    if environment.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return None
    if not endpoint and exporter is None and not any(environment.get(name) for name in ENDPOINTS):
        return None
    sdk, resources = _need("opentelemetry.sdk.trace"), _need("opentelemetry.sdk.resources")
    export = _need("opentelemetry.sdk.trace.export")
    names: dict[str, str] = {"service.name": environment.get("OTEL_SERVICE_NAME") or SERVICE}
    if instance:
        names["service.instance.id"] = instance
    provider = sdk.TracerProvider(resource=resources.Resource.create(names), shutdown_on_exit=False)
    processor: Callable[[Any], Any] = export.BatchSpanProcessor if exporter is None else export.SimpleSpanProcessor
    provider.add_span_processor(processor(exporter or _otlp(endpoint)))
    return OtelTracer(provider)


def _otlp(endpoint: str) -> Any:
    made = _need("opentelemetry.exporter.otlp.proto.http.trace_exporter").OTLPSpanExporter
    base = endpoint.rstrip("/").removesuffix(PATH)
    return made(endpoint=base + PATH) if base else made()


def _plain(value: object) -> str | bool | int | float:
    """Attributes hold scalars: other values, such as keys, are converted to text."""
    return value if isinstance(value, str | bool | int | float) else str(value)


def _need(module: str) -> Any:
    try:
        return import_module(module)
    except ImportError as error:
        raise TracingUnavailable(
            f"traces need OpenTelemetry, and {error.name} is not installed: install {EXTRA}, or start without "
            f"--otlp-endpoint and {ENDPOINTS[1]}"
        ) from error
