"""The port for traces. Off costs nothing: one call that answers a context manager that does nothing.

`telemetry/otel.py` records with OpenTelemetry. A parent is the W3C context that a span continues (telemetry/context.py).
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Protocol

from sandpool.telemetry.context import Context


class Tracer(Protocol):
    def span(self, name: str, *, parent: Context | None = None, **attributes: object) -> AbstractContextManager[object]:
        """A span around what runs inside, ended (and marked as failed by an exception) on the way out. Without `parent`
        it belongs to the span that it is opened in."""
        ...


class NullTracer:
    def span(self, name: str, *, parent: Context | None = None, **attributes: object) -> AbstractContextManager[object]:
        return _NOTHING


_NOTHING: AbstractContextManager[object] = nullcontext()
