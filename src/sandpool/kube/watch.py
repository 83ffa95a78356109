"""The watch parser: bytes in, events out. It does no I/O, so every way to cut a stream into chunks can be tested.

A frame is one line of JSON: a type and an object. The object is decoded only after the type is known. A parser that
met something after which nothing can be trusted has `failure` set and gives no more events: Gone to relist, another
ApiError that the server sent, or Unreadable. `revision` is where to resume.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

import msgspec

from sandpool.base.errors import SandpoolError
from sandpool.kube.answers import read_status
from sandpool.kube.api import Event, EventType
from sandpool.kube.errors import Unreadable
from sandpool.model.metadata import NO_REVISION, Object, Revision

T = TypeVar("T", bound=Object)

INITIAL_EVENTS_END = "k8s.io/initial-events-end"
"""The annotation on the bookmark that ends the initial events of a streaming list."""

LONGEST_FRAME = 16 << 20
"""Bytes of one frame, at most. A server stores objects of up to 1.5 MiB."""


class _Frame(msgspec.Struct, gc=False):
    type: str
    object: msgspec.Raw


class _MarkMetadata(msgspec.Struct, gc=False, rename="camel"):
    resource_version: str
    annotations: dict[str, str] | None = None


class _Mark(msgspec.Struct, gc=False):
    metadata: _MarkMetadata


_FRAME = msgspec.json.Decoder(_Frame)
_MARK = msgspec.json.Decoder(_Mark)
_CHANGES = {"ADDED": EventType.ADDED, "MODIFIED": EventType.MODIFIED, "DELETED": EventType.DELETED}


class WatchParser(Generic[T]):
    """Feed it chunks of a watch; it returns the events that are complete."""

    def __init__(
        self, decode: Callable[[bytes], T], since: Revision = NO_REVISION, longest: int = LONGEST_FRAME
    ) -> None:
        self.revision = since
        self.failure: SandpoolError | None = None
        self._decode = decode
        self._longest = longest
        self._partial: list[bytes] = []  # chunks of an unfinished line, joined once: no quadratic cost
        self._partial_size = 0

    def feed(self, chunk: bytes) -> list[Event[T]]:
        """The events that this chunk completes."""
        if self.failure is not None:
            return []
        *lines, rest = chunk.split(b"\n")
        events: list[Event[T]] = []
        for line in lines:
            if self._partial:
                line = b"".join((*self._partial, line))
                self._partial.clear()
                self._partial_size = 0
            self._take(line, events)
            if self.failure is not None:
                return events
        self._keep(rest)
        return events

    def end(self) -> None:
        """The stream has ended. An unfinished line is a failure: the server did not end the watch itself."""
        if self.failure is None and b"".join(self._partial).strip():
            self.failure = Unreadable("the watch ended inside an event; resume it")

    def _keep(self, rest: bytes) -> None:
        if rest:
            self._partial.append(rest)
            self._partial_size += len(rest)
            if self._partial_size > self._longest:
                self._fail_long()

    def _fail_long(self) -> None:
        self.failure = Unreadable(f"a watch event is longer than {self._longest} bytes; is this an API server?")
        self._partial.clear()

    def _take(self, line: bytes, events: list[Event[T]]) -> None:
        if len(line) > self._longest:
            self._fail_long()
            return
        if not line or line.isspace():
            return
        try:
            event = self._event(line)
        except (msgspec.DecodeError, ValueError) as error:
            self.failure = Unreadable(f"a watch event after revision {self.revision} cannot be read: {error}")
            return
        if event is not None:
            self.revision = event.revision
            events.append(event)

    def _event(self, line: bytes) -> Event[T] | None:
        frame = _FRAME.decode(line)
        change = _CHANGES.get(frame.type)
        if change is not None:
            object = self._decode(bytes(frame.object))
            return Event(change, object, object.metadata.revision)
        if frame.type == "BOOKMARK":
            mark = _MARK.decode(frame.object).metadata
            done = (mark.annotations or {}).get(INITIAL_EVENTS_END) == "true"
            return Event(EventType.BOOKMARK, None, Revision(int(mark.resource_version)), done)
        if frame.type == "ERROR":
            self.failure = read_status(500, bytes(frame.object))
            return None
        raise ValueError(f"its type is {frame.type[:40]!r}")
