"""A disk after a power cut: which bytes and names it may hold, given a recorded timeline and the moment of the cut.

What a completed sync covers is there. Of everything later, each 512-byte sector of a write, each truncation and each change
of a name may be there or not; changes of names keep their order, as journaling file systems do.
"""

from __future__ import annotations

import enum
import random
from dataclasses import dataclass, field
from pathlib import Path

SECTOR = 512


class Kind(enum.Enum):
    CREATE = enum.auto()
    REMOVE = enum.auto()
    RENAME = enum.auto()
    WRITE = enum.auto()
    TRUNCATE = enum.auto()
    SYNC = enum.auto()  # of a file, or, without an inode, of the directory
    ACKNOWLEDGED = enum.auto()


@dataclass(slots=True)
class Event:
    kind: Kind
    index: int
    inode: int | None = None
    name: str = ""
    target: str = ""
    offset: int = 0  # of a write; the new size of a truncation
    data: bytes = b""
    covers: int = 0  # a sync makes durable what ended before this index
    revision: int = 0
    ended: int | None = None


class Fate(enum.Enum):
    """What became of that which was not synced."""

    NOTHING = enum.auto()
    EVERYTHING = enum.auto()
    TORN = enum.auto()


@dataclass(slots=True)
class Disk:
    """The files of one directory: names lead to inodes, inodes hold bytes."""

    names: dict[str, int] = field(default_factory=dict)
    inodes: dict[int, bytearray] = field(default_factory=dict)

    def write_to(self, directory: Path) -> None:
        for name, inode in self.names.items():
            (directory / name).write_bytes(self.inodes.get(inode, b""))


_NAMES = (Kind.CREATE, Kind.REMOVE, Kind.RENAME)
_CONTENT = (Kind.WRITE, Kind.TRUNCATE)


def cut(events: list[Event], moment: int, fate: Fate, random_: random.Random) -> Disk:
    """The disk if the power went just before the event with index `moment`."""
    past = events[:moment]
    synced: dict[int | None, int] = {}
    for event in past:
        if event.kind is Kind.SYNC:
            synced[event.inode] = max(synced.get(event.inode, 0), event.covers)
    disk = Disk()
    _change_names(disk, past, synced.get(None, 0), fate, random_)
    for event in past:
        if event.kind in _CONTENT:
            assert event.inode is not None
            until = synced.get(event.inode, 0)
            durable = event.index < until and event.ended is not None and event.ended <= until
            _change_content(disk.inodes.setdefault(event.inode, bytearray()), event, durable, fate, random_)
    return disk


def _change_names(disk: Disk, past: list[Event], synced: int, fate: Fate, random_: random.Random) -> None:
    changes = [event for event in past if event.kind in _NAMES]
    durable = sum(event.index < synced for event in changes)
    if fate is Fate.EVERYTHING:
        durable = len(changes)
    elif fate is Fate.TORN:
        durable = random_.randint(durable, len(changes))
    for event in changes[:durable]:
        match event.kind:
            case Kind.CREATE:
                assert event.inode is not None
                disk.names[event.name] = event.inode
            case Kind.REMOVE:
                disk.names.pop(event.name, None)
            case _:
                disk.names[event.target] = disk.names.pop(event.name)


def _change_content(content: bytearray, event: Event, durable: bool, fate: Fate, random_: random.Random) -> None:
    if not durable and fate is Fate.NOTHING:
        return
    torn = not durable and fate is Fate.TORN
    if event.kind is Kind.TRUNCATE:
        if not torn or random_.random() < 0.5:
            content[:] = content[: event.offset].ljust(event.offset, b"\0")
        return
    position, end = event.offset, event.offset + len(event.data)
    while position < end:
        stop = min(end, (position // SECTOR + 1) * SECTOR) if torn else end
        if not torn or random_.random() < 0.5:
            if len(content) < stop:
                content.extend(bytes(stop - len(content)))
            content[position:stop] = event.data[position - event.offset : stop - event.offset]
        position = stop
