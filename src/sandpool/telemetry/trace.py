"""The port for traces. Today nothing is recorded; an OpenTelemetry tracer fits the same shape."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Protocol


class Tracer(Protocol):
    def span(self, name: str, **attributes: object) -> AbstractContextManager[object]:
        """A span around what runs inside, ended (and marked as failed by an exception) on the way out."""
        ...


class NullTracer:
    def span(self, name: str, **attributes: object) -> AbstractContextManager[object]:
        return _NOTHING


_NOTHING: AbstractContextManager[object] = nullcontext()
