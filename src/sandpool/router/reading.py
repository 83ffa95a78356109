"""Reads heads off a line."""

from __future__ import annotations

from collections.abc import Callable

from sandpool.router.head import END, BadHead
from sandpool.router.line import SMALL, Line


class CutShort(Exception):
    """The other side ended in the middle of a head."""


async def read_head(line: Line, longest: int, begun: Callable[[], None] | None = None) -> bytes | None:
    """All lines of a head, with their ends, without the empty one. None: the other side ended instead of beginning one. `begun` is
    called when the first byte is here and the last one is not."""
    if not (line.held or line.ended or line.secure):
        await line.readable()  # it is not there yet: a try would only cost
    data = await line.read(SMALL)
    if not data:
        return None
    seen = 0
    while (end := data.find(END, seen)) < 0:
        if len(data) > longest:
            raise BadHead("the head is too long", 431)
        if begun is not None:
            begun()
            begun = None
        seen = max(0, len(data) - 3)
        more = await line.read(SMALL)
        if not more:
            raise CutShort
        data += more
    if end + 4 > longest:
        raise BadHead("the head is too long", 431)
    line.held = data[end + 4 :] + line.held
    return data[: end + 2]
