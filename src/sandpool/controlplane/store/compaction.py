"""Forgetting rows that nobody can ask for any more.

Above the floor the log is complete: every change there still has the row before it, so history survives a restart. Below
it only live rows remain. The floor moves up in small steps, never into the last `window` revisions, and never past the newest
row, whose id is what keeps revisions from being given twice. A lull is the time for it; only where no lull comes, and a quarter
of a window has gathered, steps ride on commits, for which somebody waits.

On a full disk room counts for more than history: the window is one revision, and each commit forgets what the one before it superseded.
The rows of deletes then take each other's place, and however much is deleted, the file does not grow.
"""

from __future__ import annotations

import sqlite3

from sandpool.controlplane.store.checksums import floor_checksum
from sandpool.model.metadata import Revision

SMALLEST_STEP = 64


def next_floor(floor: Revision, newest: Revision, window: int, writes: int) -> Revision | None:
    """Where a commit of so many writes should move the floor; None: nowhere yet. Twice as far as the log grows by it, so
    that it catches up, and not for a handful of rows, unless nothing is to be kept."""
    highest = newest - max(window, 1)
    if highest - floor < (max(SMALLEST_STEP, window // 4) if window else 1):
        return None
    return Revision(min(highest, floor + max(SMALLEST_STEP, 2 * writes)))


def floor_in_a_lull(floor: Revision, newest: Revision, window: int) -> Revision | None:
    """Where to move it when nobody waits for a commit: one small step, because somebody may come."""
    highest = newest - max(window, 1)
    return None if highest - floor < (SMALLEST_STEP if window else 1) else Revision(min(highest, floor + SMALLEST_STEP))


def move_floor(connection: sqlite3.Connection, floor: Revision, target: Revision, identity: str) -> None:
    """Removes, inside the transaction of the caller, what the rows up to `target` superseded, and their deletions."""
    step = (floor, target)
    connection.execute("DELETE FROM log WHERE id IN (SELECT prev_revision FROM log WHERE id > ? AND id <= ?)", step)
    connection.execute("DELETE FROM log WHERE id > ? AND id <= ? AND deleted", step)
    connection.execute("UPDATE floor SET revision = ?, checksum = ?", (target, floor_checksum(target, identity)))
