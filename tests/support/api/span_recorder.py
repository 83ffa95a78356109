"""A Tracer that remembers its spans: which, in what, continuing what, and how they ended."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field

from sandpool.telemetry.trace import Context

_INSIDE: ContextVar[str] = ContextVar("span_recorder_inside", default="")


@dataclass(slots=True)
class Span:
    name: str
    parent: Context | None
    inside: str
    attributes: dict[str, object]
    failed: str = ""


@dataclass(slots=True)
class SpanRecorder:
    spans: list[Span] = field(default_factory=list)

    @contextmanager
    def span(self, name: str, *, parent: Context | None = None, **attributes: object) -> Iterator[Span]:
        span = Span(name, parent, _INSIDE.get(), attributes)
        self.spans.append(span)
        token = _INSIDE.set(name)
        try:
            yield span
        except BaseException as error:
            span.failed = type(error).__name__
            raise
        finally:
            _INSIDE.reset(token)
