"""Tar archives of directory trees: a streaming reader, and the headers of entries that we write. Pure.

The reader is strict, because the sender may be hostile. It returns a Member where an entry begins, then the bytes of its content. It
knows plain files, directories, symlinks and the extended headers of pax and GNU; everything else is a Member of type "other". It checks
sizes and counts before it buffers anything. boxd reads uploads with Python's tarfile instead, which accepts more formats.
"""

from __future__ import annotations

import os
import stat
import tarfile
from dataclasses import dataclass
from typing import Final, Literal

BLOCK: Final = tarfile.BLOCKSIZE
MOST_MEMBERS: Final = 1_000_000
LONGEST_EXTENSION: Final = 256 * 1024
"""Maximum bytes of an extended header, which holds long names and the like."""

MemberType = Literal["file", "directory", "symlink", "other"]
_TYPES: Final[dict[bytes, MemberType]] = {
    tarfile.REGTYPE: "file", tarfile.AREGTYPE: "file", tarfile.DIRTYPE: "directory", tarfile.SYMTYPE: "symlink",
}  # fmt: skip

_READ: Final = frozenset(("path", "linkpath", "size"))
_SPARSE: Final = "GNU.sparse."


class BadArchive(ValueError):
    """These bytes are not a tar archive, or not one that we accept."""


@dataclass(frozen=True, slots=True)
class Member:
    name: str
    type: MemberType
    size: int = 0
    mode: int = 0o644
    modified: float = 0
    target: str = ""  # of a symlink


class TarReader:
    """Feed it bytes as they arrive; it returns members and pieces of their content. `ended` is set at the end of the archive."""

    def __init__(self) -> None:
        self._held = bytearray()
        self._left = 0  # bytes left of the current member's content
        self._padding = 0  # bytes of padding after it
        self._extension = b""  # the type of the extended header that is being collected
        self._collected = bytearray()
        self._known: dict[str, str] = {}  # fields of the next member from extended headers
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
        """Returns how many bytes were consumed; 0 if more are needed."""
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
            # Keep nothing else: any number of extended headers may precede a member.
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


def describe(name: str, found: os.stat_result, link: str = "") -> tarfile.TarInfo | None:
    """The tar header of a file, directory or symlink; None for other types. `link` is the target of a symlink."""
    member = tarfile.TarInfo(name)
    member.mode, member.mtime = stat.S_IMODE(found.st_mode), int(found.st_mtime)
    if stat.S_ISREG(found.st_mode):
        member.size = found.st_size
    elif stat.S_ISDIR(found.st_mode):
        member.type = tarfile.DIRTYPE
    elif stat.S_ISLNK(found.st_mode):
        member.type, member.linkname = tarfile.SYMTYPE, link
    else:
        return None
    return member


def _records(data: bytes) -> dict[str, str]:
    """Parses pax records: lines of `LENGTH KEY=VALUE`, each exactly LENGTH bytes long."""
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
