"""Where a chunked body ends. Pure: it is fed bytes and says how many of them belong to the body."""

from __future__ import annotations

import re

from sandpool.node.network.egress.refusal import malformed

_SIZE = re.compile(rb"([0-9A-Fa-f]{1,15})(?:[ \t]*;[\t\x20-\x7e\x80-\xff]*)?")
_MAX_LINE = 4096
_MAX_TRAILERS = 32 * 1024


class Chunks:
    """`feed` gives back how many bytes of the data belong to this body; from `ended` on, none do."""

    def __init__(self) -> None:
        self.ended = False
        self.found = 0  # chunks so far
        self._left = 0  # bytes of a chunk, with its line end
        self._line = b""  # of a line that is not complete
        self._trailing = False  # behind the last chunk
        self._trailers = 0

    def feed(self, data: bytes) -> int:
        at = 0
        while at < len(data) and not self.ended:
            if self._left > 0:
                at += self._content(data, at)
            else:
                at += self._piece(data, at)
        return at

    def _content(self, data: bytes, at: int) -> int:
        taken = min(self._left, len(data) - at)
        ending = data[at + max(0, self._left - 2) : at + taken]  # what of it falls into the line end
        expected = b"\r\n"[2 - min(self._left, 2) :][: len(ending)]
        if ending != expected:
            raise malformed("a chunk of the body does not end where it says")
        self._left -= taken
        return taken

    def _piece(self, data: bytes, at: int) -> int:
        """Up to the end of a line, or all that is there."""
        stop = data.find(b"\n", at)
        taken = (len(data) if stop < 0 else stop + 1) - at
        self._line += data[at : at + taken]
        if len(self._line) > _MAX_LINE:
            raise malformed("a line between the chunks of the body is too long")
        if stop >= 0:
            line, self._line = self._line, b""
            if not line.endswith(b"\r\n") or b"\r" in line[:-2]:
                raise malformed("a line between the chunks of the body does not end in CR LF")
            self._complete(line[:-2])
        return taken

    def _complete(self, line: bytes) -> None:
        if self._trailing:
            self._trailers += len(line)
            if self._trailers > _MAX_TRAILERS:
                raise malformed("the trailers of the body are too long")
            self.ended = not line
            return
        found = _SIZE.fullmatch(line)
        if found is None:
            raise malformed("a chunk of the body has no valid size")
        self.found += 1
        size = int(found[1], 16)
        self._trailing = size == 0
        self._left = size + 2 if size else 0
