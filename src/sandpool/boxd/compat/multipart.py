"""Parses a multipart/form-data body as it arrives: one part after the other, of any size."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator

from sandpool.wire.codes import Code, Refused

_LONGEST_HEAD = 16 * 1024
_BOUNDARY = re.compile(r'boundary=(?:"([^"]{1,200})"|([^\s;"]{1,200}))', re.IGNORECASE)
_PARAMETER = re.compile(r'(?:^|;)\s*(name|filename\*?)=(?:"((?:[^"\\]|\\.)*)"|([^\s;"]+))', re.IGNORECASE)


class Form:
    def __init__(self, content_type: str, pieces: AsyncGenerator[bytes, None]) -> None:
        found = _BOUNDARY.search(content_type)
        if found is None:
            raise Refused(Code.INVALID, "the form has no boundary")
        self._mark = b"\r\n--" + (found[1] or found[2]).encode()
        self._pieces = pieces
        self._held = bytearray(b"\r\n")  # the first boundary has no line before it
        self._over = False

    async def part(self, name: str) -> str:
        """Skips to the part of this name and returns its file name."""
        while True:
            async for _ in self.content():
                pass
            if self._over:
                raise Refused(Code.INVALID, f"the form has no part named {name!r}")
            found, filename = await self._head()
            if found == name:
                return filename

    async def content(self) -> AsyncGenerator[bytes, None]:
        """The rest of the current part, or the preamble before the first part."""
        mark = len(self._mark)
        while not self._over:
            at = self._held.find(self._mark)
            if at >= 0 and len(self._held) >= at + mark + 2:
                follows = bytes(self._held[at + mark : at + mark + 2])
                ends = follows in (b"\r\n", b"--")
                piece = bytes(self._held[: at if ends else at + 2])  # else it only begins like the boundary
                del self._held[: at + mark if ends else at + 2]
                if piece:
                    yield piece
                if ends:
                    self._over = follows == b"--"
                    return
                continue
            safe = at if at >= 0 else len(self._held) - mark
            if safe > 0:
                piece = bytes(self._held[:safe])
                del self._held[:safe]
                yield piece
            if not await self._more():
                raise Refused(Code.INVALID, "the form ends before its last boundary")

    async def rest(self) -> None:
        while not self._over:
            async for _ in self.content():
                pass
            if not self._over:
                await self._head()
        async for _ in self._pieces:
            pass

    async def _head(self) -> tuple[str, str]:
        while (end := self._held.find(b"\r\n\r\n")) < 0:
            if len(self._held) > _LONGEST_HEAD or not await self._more():
                raise Refused(Code.INVALID, "the headers of a part are too long or incomplete")
        head = bytes(self._held[:end]).decode("utf-8", "surrogateescape")
        del self._held[: end + 4]
        return _names(head)

    async def _more(self) -> bool:
        piece = await anext(self._pieces, None)
        if piece is None:
            return False
        self._held += piece
        return True


def _names(head: str) -> tuple[str, str]:
    for line in head.split("\r\n"):
        name, _, value = line.partition(":")
        if name.strip().lower() == "content-disposition":
            found = {key.lower(): (quoted or plain) for key, quoted, plain in _PARAMETER.findall(value)}
            return _plain(found.get("name", "")), _plain(found.get("filename", ""))
    return "", ""


def _plain(text: str) -> str:
    """Unescapes a quoted name: with backslashes or, as browsers send it, with percent signs."""
    text = re.sub(r"\\(.)", r"\1", text)
    return text.replace("%22", '"').replace("%0D", "\r").replace("%0A", "\n")
