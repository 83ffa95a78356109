"""A tar archive read from bytes as they come. Pure, and strict: what sends it may be hostile.

Gives a Member where one begins, then the bytes of its content. Known are plain files, folders, symlinks and the extended heads
of pax and GNU; everything else is a Member of the type "other". Sizes and counts are limited before anything is held.
"""

from __future__ import annotations

import tarfile
from dataclasses import dataclass
from typing import Final, Literal

BLOCK: Final = tarfile.BLOCKSIZE
MOST_MEMBERS: Final = 1_000_000
LONGEST_EXTENSION: Final = 256 * 1024
"""Bytes of an extended head, which says long names and the like."""

MemberType = Literal["file", "directory", "symlink", "other"]
_TYPES: Final[dict[bytes, MemberType]] = {
    tarfile.REGTYPE: "file", tarfile.AREGTYPE: "file", tarfile.DIRTYPE: "directory", tarfile.SYMTYPE: "symlink",
}  # fmt: skip

_READ: Final = frozenset(("path", "linkpath", "size"))
_SPARSE: Final = "GNU.sparse."


class BadArchive(ValueError):
    """These bytes are no tar archive, or one that is not accepted."""


@dataclass(frozen=True, slots=True)
class Member:
    name: str
    type: MemberType
    size: int = 0
    mode: int = 0o644
    modified: float = 0
    target: str = ""  # of a symlink


class TarReader:
    def __init__(self) -> None:
        self._held = bytearray()
        self._left = 0  # of the current member's content
        self._padding = 0  # after it
        self._extension = b""  # the type of an extended head whose content is being collected
        self._collected = bytearray()
        self._known: dict[str, str] = {}  # what extended heads say about the next member
        self._members = 0
        self.ended = False

    def feed(self, data: bytes) -> list[Member | bytes]:
        found: list[Member | bytes] = []
        self._held += data
        view = memoryview(self._held)
        at = 0
        try:
            while taken := self._step(view[at:], found):
                at += taken
        finally:
            view.release()
        del self._held[:at]
        return found

    def _step(self, view: memoryview, found: list[Member | bytes]) -> int:
        """How many bytes were used; 0: more are needed."""
        with view:
            if self.ended:  # what follows is padding
                return len(view)
            if self._left:
                return self._content(view, found)
            if self._padding:
                taken = min(self._padding, len(view))
                self._padding -= taken
                return taken
            if len(view) < BLOCK:
                return 0
            self._head(bytes(view[:BLOCK]), found)
            return BLOCK

    def _content(self, view: memoryview, found: list[Member | bytes]) -> int:
        piece = bytes(view[: self._left])
        self._left -= len(piece)
        if not self._extension:
            if piece:
                found.append(piece)
            return len(piece)
        self._collected += piece
        if not self._left:
            self._learn(self._extension, bytes(self._collected))
            self._extension = b""
            self._collected.clear()
        return len(piece)

    def _head(self, block: bytes, found: list[Member | bytes]) -> None:
        if not block.strip(b"\0"):
            self.ended = True
            return
        try:
            head = tarfile.TarInfo.frombuf(block, "utf-8", "surrogateescape")
        except tarfile.HeaderError as error:
            raise BadArchive(f"a head is malformed: {error}") from None
        if head.size < 0:
            raise BadArchive("a size is negative")
        self._members += 1
        if self._members > MOST_MEMBERS:
            raise BadArchive(f"more than {MOST_MEMBERS} members")
        if head.type in (tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK):
            self._extend(head)
            return
        member = self._described(head)
        self._known = {}
        self._left, self._padding = member.size, -member.size % BLOCK
        found.append(member)

    def _extend(self, head: tarfile.TarInfo) -> None:
        if not 0 < head.size <= LONGEST_EXTENSION:
            raise BadArchive(f"an extended head of {head.size} bytes; {LONGEST_EXTENSION} are allowed")
        self._extension = head.type
        self._left, self._padding = head.size, -head.size % BLOCK

    def _learn(self, kind: bytes, data: bytes) -> None:
        if kind == tarfile.GNUTYPE_LONGNAME:
            self._known["path"] = _text(data.rstrip(b"\0"))
        elif kind == tarfile.GNUTYPE_LONGLINK:
            self._known["linkpath"] = _text(data.rstrip(b"\0"))
        elif kind == tarfile.XHDTYPE:
            records = _records(data)
            if any(key.startswith(_SPARSE) for key in records):
                raise BadArchive("sparse members are not read")
            # Nothing else is kept: any number of heads may come before a member.
            self._known |= {key: records[key] for key in _READ & records.keys()}

    def _described(self, head: tarfile.TarInfo) -> Member:
        known = self._known
        size = known.get("size")
        if size is not None and not (size.isascii() and size.isdigit() and len(size) < 19):
            raise BadArchive(f"the size {size[:40]!r} is no number")
        kind: MemberType = _TYPES.get(head.type, "other")
        name = known.get("path", head.name)
        if kind == "file" and head.type == tarfile.AREGTYPE and name.endswith("/"):
            kind = "directory"
        length = (int(size) if size is not None else head.size) if kind in ("file", "other") else 0
        return Member(name.rstrip("/"), kind, length, head.mode, head.mtime, known.get("linkpath", head.linkname))


def _records(data: bytes) -> dict[str, str]:
    """Lines of `LENGTH KEY=VALUE`, each as long as it says."""
    found: dict[str, str] = {}
    at = 0
    while at < len(data) and data[at : at + 1] != b"\0":
        number, space, _ = data[at : at + 20].partition(b" ")
        length = int(number) if space and number.isdigit() else 0
        record = data[at + len(number) + 1 : at + length]
        key, equals, value = record.partition(b"=")
        if not equals or record[-1:] != b"\n" or at + length > len(data):
            raise BadArchive("an extended head is malformed")
        found[_text(key)] = _text(value[:-1])
        at += length
    return found


def _text(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")
