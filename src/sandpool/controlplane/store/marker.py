"""The marker: a small file beside the store that says up to which revision writes were acknowledged.

SQLite treats a write-ahead log that was cut, damaged or removed as one that ended there, and starts without a word. The
marker is how we know that more was acknowledged.

It never claims too much: the writer writes it after the commit is durable. It claims enough: the write reaches the kernel
before the acknowledgement leaves, so after `kill -9` it is exact. A thread makes it durable soon after, without anybody
waiting, so after a power loss it may lag by what was acknowledged in the last moments.

Three slots take turns. One is written, one is being made durable, one is durable and not touched: a write that the power
cut short never takes the others with it.
"""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from zlib import crc32

from sandpool.controlplane.store.files import create_private, rename_durably
from sandpool.model.metadata import NO_REVISION, Revision
from sandpool.telemetry.log import logger

log = logger(__name__)

SPACING: Final = 0.1
"""Seconds between two syncs: how far the marker may lag behind after a power loss."""

_SLOTS: Final = 3
_SLOT: Final = 4096  # no two slots in one sector, whatever the disk calls a sector
_MAGIC: Final = b"sandpool-mark 1"


@dataclass(frozen=True, slots=True)
class Mark:
    """Every write to the store `identity` up to `revision` was acknowledged."""

    identity: str
    revision: Revision


class DamagedMarker(Exception):
    """The file is there and says nothing that can be trusted."""


def marker_of(store: Path) -> Path:
    return store.with_name(store.name + "-mark")


def encode_slot(mark: Mark) -> bytes:
    text = b"%b %b %d" % (_MAGIC, mark.identity.encode(), mark.revision)
    return b"%b %08x\n" % (text, crc32(text))


def decode_slot(slot: bytes) -> Mark | None:
    """None if it is torn, damaged or was never written."""
    line, ended, _ = slot.partition(b"\n")
    text, _, checksum = line.rpartition(b" ")
    if not ended or not text.startswith(_MAGIC + b" ") or checksum != b"%08x" % crc32(text):
        return None
    identity, _, revision = text[len(_MAGIC) + 1 :].partition(b" ")
    return Mark(identity.decode(), Revision(int(revision)))


def read_mark(store: Path) -> Mark | None:
    """What the marker of a store says; None if there is no marker. Raises DamagedMarker."""
    try:
        found = [mark for mark in _slots(store) if mark is not None]
    except FileNotFoundError:
        return None
    except OSError as error:
        raise DamagedMarker(error.strerror or str(error)) from error
    if not found or len({mark.identity for mark in found}) > 1:
        raise DamagedMarker("its checksums are wrong")
    return max(found, key=lambda mark: mark.revision)


def _slots(store: Path) -> list[Mark | None]:
    content = marker_of(store).read_bytes()
    return [decode_slot(content[slot * _SLOT : (slot + 1) * _SLOT]) for slot in range(_SLOTS)]


def write_mark(store: Path, mark: Mark) -> None:
    """Replaces the marker, durably."""
    target = marker_of(store)
    draft = target.with_name(target.name + ".new")
    create_private(draft)
    descriptor = os.open(draft, os.O_WRONLY)
    try:
        os.pwrite(descriptor, encode_slot(mark).ljust(_SLOT, b"\0") * _SLOTS, 0)
    finally:
        os.close(descriptor)
    rename_durably(draft, target)


class Marker:
    """The marker of an open store, written in place: that needs no room on a full disk. `acknowledge` is called by the writer's thread only."""

    def __init__(self, store: Path, identity: str, spacing: float = SPACING) -> None:
        self._path = marker_of(store)
        self._identity = identity
        revisions = [NO_REVISION if mark is None else mark.revision for mark in _slots(store)]
        self._slot = (revisions.index(max(revisions)) + 1) % _SLOTS  # what says most stays until another is durable
        self._descriptor = os.open(self._path, os.O_WRONLY)
        self._spacing = spacing
        self._turn = threading.Lock()
        self._wake = threading.Event()
        self._stopping = threading.Event()
        self._troubled = False
        self._thread = threading.Thread(target=self._run, name="sandpool-marker", daemon=True)
        self._thread.start()

    def acknowledge(self, revision: Revision) -> None:
        """Never fails: the write is durable whatever becomes of the marker, which only lags behind."""
        content = encode_slot(Mark(self._identity, revision))
        try:
            with self._turn:
                os.pwrite(self._descriptor, content, self._slot * _SLOT)
        except OSError as error:
            self._trouble(error)
        if not self._wake.is_set():
            self._wake.set()

    def _run(self) -> None:
        while not self._stopping.is_set():
            self._wake.wait()
            self._wake.clear()
            self._sync()
            self._stopping.wait(self._spacing)

    def _sync(self) -> None:
        with self._turn:
            self._slot = (self._slot + 1) % _SLOTS
        try:
            os.fdatasync(self._descriptor)
        except OSError as error:
            self._trouble(error)

    def _trouble(self, error: OSError) -> None:
        if not self._troubled:
            log.warning("the store's marker cannot be written and lags behind", path=self._path, error=error)
        self._troubled = True

    def close(self) -> None:
        self._stopping.set()
        self._wake.set()
        self._thread.join()
        self._sync()
        os.close(self._descriptor)
