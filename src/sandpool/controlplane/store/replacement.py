"""Replaces the file of a store atomically, and saves the files of a damaged store.

SQLite would apply an old write-ahead log to the new database beside it. So the new file is first renamed to `.replacement`, which commits the
replacement: from then on, opening the store finishes the replacement before anything else.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable
from pathlib import Path

from sandpool.controlplane.store.damage import Diagnosis
from sandpool.controlplane.store.errors import StoreError
from sandpool.controlplane.store.files import (
    create_private,
    remove,
    rename_durably,
    side_files,
    sync_directory,
    sync_file,
)
from sandpool.controlplane.store.loading import UNSOUND, read_floor
from sandpool.controlplane.store.log import Row
from sandpool.controlplane.store.marker import Mark, marker_of, write_mark
from sandpool.controlplane.store.sqlite_file import open_reader, write_store
from sandpool.model.metadata import NO_REVISION, Revision


def draft_of(store: Path) -> Path:
    """The path under which a replacement is prepared."""
    return store.with_name(store.name + ".next")


def _decided(store: Path) -> Path:
    return store.with_name(store.name + ".replacement")


def discard_draft(store: Path) -> None:
    draft = draft_of(store)
    for file in (draft, marker_of(draft), *side_files(draft)):
        remove(file)


def replace_store(store: Path, rows: Iterable[Row], floor: Revision) -> None:
    """Makes the store hold exactly these rows, atomically."""
    discard_draft(store)
    write_store(draft_of(store), rows, floor)
    install(store)


def install(store: Path) -> None:
    """Replaces the store by the draft, which must be a closed store."""
    rename_durably(draft_of(store), _decided(store))
    remove(marker_of(draft_of(store)))
    finish(store)


def finish(store: Path) -> None:
    """Finishes a replacement that was committed and perhaps interrupted. Does nothing if there is none."""
    decided = _decided(store)
    if not decided.exists():
        return
    try:
        mark = _mark_in(decided)
    except UNSOUND as error:
        raise StoreError(
            f"{decided} should take the place of {store.name} and cannot be read ({error}): remove it, and what was found before is found again"
        ) from error
    write_mark(store, mark)
    for file in side_files(store):
        remove(file)
    sync_directory(store.parent)
    rename_durably(decided, store)


def _mark_in(path: Path) -> Mark:
    connection = open_reader(path)
    try:
        floor, identity = read_floor(connection, sealed=True)
        newest = connection.execute("SELECT max(id) FROM log").fetchone()[0]
    finally:
        connection.close()
    return Mark(identity, Revision(max(floor, newest or NO_REVISION)))


def set_aside(diagnosis: Diagnosis) -> Path:
    """Saves the damaged files, and the list of what is damaged, in a new directory beside the store. The originals stay in place."""
    store = diagnosis.path
    kept = _new_directory(store.parent)
    for file in (store, *side_files(store), marker_of(store)):
        if file.exists() and not file.name.endswith("-shm"):  # an index of the write-ahead log, which SQLite rebuilds
            _keep(file, kept / file.name)
    report = kept / "report.txt"
    create_private(report)
    report.write_text("".join(f"{line}\n" for line in diagnosis.lines()))
    sync_directory(kept)
    sync_directory(store.parent)
    return kept


def _keep(file: Path, target: Path) -> None:
    """Saves a file by a hard link, which takes no space. That is safe: nothing writes to a file that is about to be replaced."""
    try:
        os.link(file, target)
    except OSError:  # a file system without links
        shutil.copyfile(file, target)
        sync_file(target)
    os.chmod(target, 0o600)


def _new_directory(parent: Path) -> Path:
    number = 1
    while True:
        path = parent / f"damaged-{number}"
        try:
            path.mkdir(mode=0o700)
        except FileExistsError:
            number += 1
        else:
            return path
