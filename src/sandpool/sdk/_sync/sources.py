# generated from sdk/_async/sources.py by tools/unasync.py; edit that one
# ruff: noqa: C416, SIM110, SIM117, UP028, RUF100
"""Turns what a user passes as content (bytes, text, files, iterators) into pieces of a bounded size."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import IO, Any

Source = bytes | bytearray | memoryview | str | IO[bytes] | IO[str] | Iterable[bytes] | Iterable[bytes]
"""Bytes, text (as UTF-8), a file that is open for reading, or an iterator of bytes."""


def plain(source: Source) -> bytes | None:
    """Content that is in memory already; None for what has to be read."""
    if isinstance(source, str):
        return source.encode("utf-8", "surrogateescape")
    if isinstance(source, bytes | bytearray | memoryview):
        return bytes(source)
    if isinstance(source, Mapping) or not any(hasattr(source, name) for name in ("read", "__iter__", "__iter__")):
        kind = type(source).__name__
        raise TypeError(f"{kind} cannot be sent; give bytes, text, an open file, or an iterator of bytes")
    return None


def pieces_of(source: Source, size: int) -> Iterator[bytes]:
    """None of them is empty or longer than `size`."""
    for data in _read(source, size):
        piece = data.encode("utf-8", "surrogateescape") if isinstance(data, str) else data
        if len(piece) <= size:
            if piece:
                yield bytes(piece)
            continue
        for at in range(0, len(piece), size):
            yield bytes(piece[at : at + size])


def _read(source: Any, size: int) -> Iterator[Any]:
    whole = plain(source)
    if whole is not None:
        yield memoryview(whole)
    elif hasattr(source, "read"):
        while data := source.read(size):
            yield data
    elif hasattr(source, "__iter__"):
        for data in source:
            yield data
    else:
        for data in source:
            yield data
