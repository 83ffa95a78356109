"""The port for tracing, and W3C trace contexts: how spans of several processes find each other.

Without a tracer, a span costs one call that returns a context manager that does nothing. `telemetry/otel.py` records with OpenTelemetry.

An object carries its context as JSON in an annotation. Annotations are written by tenants: what is not a trace context, or too long to be one, is
ignored. An object that carries none belongs to a trace derived from its uid, so all processes agree on it without a write.
"""

from __future__ import annotations

import re
from contextlib import AbstractContextManager, nullcontext
from hashlib import blake2b
from typing import Any, NamedTuple, Protocol

import msgspec

LONGEST = 1024
"""Characters of an annotation that are worth parsing; a traceparent has 55, a tracestate 512 at most."""
SAMPLED = 0x01
_TRACEPARENT = re.compile(r"(?!ff)[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(?:-.*)?")
_STATE = 512


class Context(NamedTuple):
    """A W3C trace context."""

    trace_id: int
    span_id: int
    flags: int = SAMPLED
    state: str = ""

    @property
    def traceparent(self) -> str:
        return f"00-{self.trace_id:032x}-{self.span_id:016x}-{self.flags:02x}"

    def annotation(self) -> str:
        """What an object carries."""
        headers = {"traceparent": self.traceparent} | ({"tracestate": self.state} if self.state else {})
        return msgspec.json.encode(headers).decode()


def of_annotation(text: str | None) -> Context | None:
    """The context that an annotation holds, or None."""
    if not text or len(text) > LONGEST:
        return None
    try:
        headers: Any = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError):
        return None
    if not isinstance(headers, dict):
        return None
    return of_traceparent(headers.get("traceparent"), headers.get("tracestate"))


def of_traceparent(header: Any, state: Any = "") -> Context | None:
    found = _TRACEPARENT.fullmatch(header) if isinstance(header, str) else None
    if found is None or (header.startswith("00-") and len(header) != 55):
        return None
    trace_id, span_id, flags = (int(part, 16) for part in found.groups())
    if not trace_id or not span_id:
        return None
    return Context(trace_id, span_id, flags & SAMPLED, state if isinstance(state, str) and len(state) <= _STATE else "")


def of_uid(uid: str) -> Context:
    """The trace of an object that carries no context: the same for all who ask, and different for each uid."""
    digest = blake2b(uid.encode(), digest_size=24).digest()
    return Context(int.from_bytes(digest[:16], "big") or 1, int.from_bytes(digest[16:], "big") or 1)


class Tracer(Protocol):
    """Opens spans."""

    def span(self, name: str, *, parent: Context | None = None, **attributes: object) -> AbstractContextManager[object]:
        """A span around what runs inside, ended (and marked as failed by an exception) on the way out. Without `parent`
        it belongs to the span that it is opened in."""
        ...


class NullTracer:
    """The tracer that records nothing."""

    def span(self, name: str, *, parent: Context | None = None, **attributes: object) -> AbstractContextManager[object]:
        return _NOTHING


_NOTHING: AbstractContextManager[object] = nullcontext()
