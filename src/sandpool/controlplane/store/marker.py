"""The marker: a small file beside the store that records up to which revision writes were acknowledged.

If a write-ahead log was cut, damaged or removed, SQLite silently treats it as ending there. The marker shows that more
was acknowledged.

It is never ahead of the store: the writer writes it after the commit is durable. After `kill -9` it is exact, because the
write reaches the kernel before the acknowledgement is sent. A thread syncs it soon after, and no request waits for that, so
after a power loss it may lag by the last moments.

There are three slots, used in rotation: one is being written, one is being synced, and one is durable and not touched. So a
write torn by a power loss cannot damage the other two.
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
"""Seconds between two syncs: how far the marker may lag after a power loss."""

_SLOTS: Final = 3
_SLOT: Final = 4096  # bytes: no two slots share a sector, whatever the sector size
_MAGIC: Final = b"sandpool-mark 1"


@dataclass(frozen=True, slots=True)
class Mark:
    """Every write to the store `identity` up to `revision` was acknowledged."""

    identity: str
    revision: Revision


class DamagedMarker(Exception):
    """The marker exists, but its content cannot be trusted."""


def marker_of(store: Path) -> Path:
    return store.with_name(store.name + "-mark")


def encode_slot(mark: Mark) -> bytes:
    text = b"%b %b %d" % (_MAGIC, mark.identity.encode(), mark.revision)
    return b"%b %08x\n" % (text, crc32(text))


def decode_slot(slot: bytes) -> Mark | None:
    """The mark in a slot; None if the slot is torn, damaged or was never written."""
    line, ended, _ = slot.partition(b"\n")
    text, _, checksum = line.rpartition(b" ")
    if not ended or not text.startswith(_MAGIC + b" ") or checksum != b"%08x" % crc32(text):
        return None
    identity, _, revision = text[len(_MAGIC) + 1 :].partition(b" ")
    return Mark(identity.decode(), Revision(int(revision)))


def read_mark(store: Path) -> Mark | None:
    """The newest mark in a store's marker; None if there is no marker. Raises DamagedMarker."""
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
    """Creates or replaces the marker file, durably."""
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
    """The marker of an open store, written in place, so that it works on a full disk. Only the writer's thread calls `acknowledge`."""

    def __init__(self, store: Path, identity: str, spacing: float = SPACING) -> None:
        self._path = marker_of(store)
        self._identity = identity
        revisions = [NO_REVISION if mark is None else mark.revision for mark in _slots(store)]
        self._slot = (revisions.index(max(revisions)) + 1) % _SLOTS  # the newest slot is kept until another is durable
        self._descriptor = os.open(self._path, os.O_WRONLY)
        self._spacing = spacing
        self._turn = threading.Lock()
        self._wake = threading.Event()
        self._stopping = threading.Event()
        self._troubled = False
        self._thread = threading.Thread(target=self._run, name="sandpool-marker", daemon=True)
        self._thread.start()

    def acknowledge(self, revision: Revision) -> None:
        """Records that all writes up to this revision are durable. Never fails: after an error the marker only lags."""
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
