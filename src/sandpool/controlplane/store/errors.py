"""What can go wrong with a store, besides Stale and Compacted (see record.py), which are ordinary answers.

StoreError
├── StoreFailed        a commit did not become durable: this write and those behind it did not happen
├── StoreClosed        asked after close
├── Ahead              a revision that has not been reached yet
├── DamagedStore       the file is one of ours, but what it holds is damaged, or not all that was acknowledged
├── DamagedBackup      a backup holds something else than what was written to it
├── ForeignFile        the file is not one of ours; nothing in it was touched
└── UnknownFormat      the file was written by a newer version
"""

from __future__ import annotations

from sandpool.base.errors import SandpoolError
from sandpool.model.metadata import Revision


class StoreError(SandpoolError):
    """Root of the store's own errors."""


class StoreFailed(StoreError):
    """A write could not be made durable. Reads go on with what is durable."""


class StoreClosed(StoreError):
    """The store, or this watcher of it, is closed."""


class Ahead(StoreError):
    """The revision asked for lies in the future."""

    def __init__(self, asked: Revision, newest: Revision) -> None:
        super().__init__(f"revision {asked} has not been reached yet, the newest is {newest}")
        self.asked = asked
        self.newest = newest


class DamagedStore(StoreError):
    """What is on disk cannot be trusted, or is not all that was acknowledged. Nothing was changed."""


class DamagedBackup(StoreError):
    """The backup cannot be trusted. Nothing was restored from it."""


class ForeignFile(StoreError):
    """Something else lives at this path. Nothing was written to it."""


class UnknownFormat(StoreError):
    """The file's format is newer than this program."""
