"""Errors of the store. Stale and Compacted (see record.py) are ordinary outcomes and not among them.

StoreError
├── StoreFailed        a commit did not become durable: this write and all later pending ones did not happen
├── StoreClosed        the store was used after close
├── Ahead              the requested revision has not been reached yet
├── DamagedStore       the file is a store, but it is damaged or lacks acknowledged writes
├── DamagedBackup      the content of a backup is not what was written to it
├── ForeignFile        the file is not a store or a backup; it was not touched
└── UnknownFormat      the file was written by a newer version
"""

from __future__ import annotations

from sandpool.base.errors import SandpoolError
from sandpool.model.metadata import Revision


class StoreError(SandpoolError):
    """Root of the store's own errors."""


class StoreFailed(StoreError):
    """A write could not be made durable. Reads continue to show what is durable."""


class StoreClosed(StoreError):
    """The store, or this watcher, is closed."""


class Ahead(StoreError):
    """The requested revision lies in the future."""

    def __init__(self, asked: Revision, newest: Revision) -> None:
        super().__init__(f"revision {asked} has not been reached yet, the newest is {newest}")
        self.asked = asked
        self.newest = newest


class DamagedStore(StoreError):
    """The store on disk is damaged, or lacks acknowledged writes. Nothing was changed."""


class DamagedBackup(StoreError):
    """The backup cannot be trusted. Nothing was restored from it."""


class ForeignFile(StoreError):
    """The file at this path is of another kind. Nothing was written to it."""


class UnknownFormat(StoreError):
    """The file was written by a newer version of this program."""
