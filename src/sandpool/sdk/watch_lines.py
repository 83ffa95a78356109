"""Parses the lines of a watch: bytes in, events as plain JSON out. Pure."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from sandpool.kube.errors import Unreadable, from_status
from sandpool.sdk.answers import check_values

LONGEST = 16 << 20  # bytes of one line: a server stores at most 1.5 MiB of one object
MOST_VALUES = 1_000_000  # of one line


@dataclass(frozen=True, slots=True)
class WatchEvent:
    type: str
    """ADDED, MODIFIED, DELETED or BOOKMARK."""
    object: dict[str, Any] = field(repr=False)

    @property
    def revision(self) -> str:
        return str(self.object.get("metadata", {}).get("resourceVersion", ""))


class WatchLines:
    def __init__(self) -> None:
        self._held = bytearray()

    def feed(self, data: bytes) -> list[WatchEvent]:
        """The events that these bytes complete. Raises what the server says is wrong, in order with them."""
        self._held += data
        if b"\n" not in data:
            self._check(self._held)  # and nothing is copied: it may come byte by byte
            return []
        *lines, rest = bytes(self._held).split(b"\n")
        self._held = bytearray(rest)
        for line in (*lines, rest):
            self._check(line)
        return [_event(line) for line in lines if line.strip()]

    def _check(self, line: bytes | bytearray) -> None:
        if len(line) > LONGEST:
            raise Unreadable(f"an event of a watch is longer than {LONGEST} bytes; is this an API server?")


def _event(line: bytes) -> WatchEvent:
    check_values(line, "an event of a watch", MOST_VALUES)
    try:
        value = json.loads(line)
        event = WatchEvent(str(value["type"]), dict(value["object"]))
        if not isinstance(event.object.get("metadata", {}), dict):
            raise TypeError
    except (ValueError, KeyError, TypeError, RecursionError):
        raise Unreadable("an event of a watch cannot be read; is this an API server?") from None
    if event.type == "ERROR":
        raise from_status(500, event.object)
    return event
