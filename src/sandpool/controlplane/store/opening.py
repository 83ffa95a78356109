"""Opens a store: creates a new one, upgrades an old one, and refuses one that is damaged or lacks acknowledged writes.

Everything is read and checked against its checksums and the marker before any connection may write.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from sandpool.controlplane.store.damage import Damaged, Diagnosis, Missing
from sandpool.controlplane.store.errors import DamagedStore, ForeignFile, StoreError
from sandpool.controlplane.store.files import side_files, sync_file
from sandpool.controlplane.store.loading import (
    UNSOUND,
    Salvaged,
    census_fact,
    holes_of,
    live_of,
    load,
    losses_of,
    read_floor,
    salvage,
)
from sandpool.controlplane.store.log import Loaded, Row
from sandpool.controlplane.store.marker import DamagedMarker, Mark, read_mark
from sandpool.controlplane.store.replacement import finish, replace_store, set_aside
from sandpool.controlplane.store.rows import Check, anything, read_rows
from sandpool.controlplane.store.sqlite_file import (
    check_header,
    create,
    is_not_damage,
    open_reader,
    open_writer,
    unusable,
)
from sandpool.model.metadata import NO_REVISION, Revision
from sandpool.telemetry.log import logger

log = logger(__name__)


@dataclass(frozen=True, slots=True)
class OpenOptions:
    """How to open a store: what the caller knows about it, and whether to accept loss."""

    accept_loss: bool = False  # start with what is left of a damaged store
    check: Check = anything  # checks values without a checksum, in a format-1 store
    traces: tuple[str, ...] = ()  # files that exist and prove that there was a store
    keep: Callable[[Diagnosis, Path], None] = lambda diagnosis, kept: None
    """Called before a damaged store is replaced, to save more than the store's own files in the directory `kept`."""


def open_store(
    path: Path, wait: float, window: int, options: OpenOptions = OpenOptions()
) -> tuple[sqlite3.Connection, Loaded]:
    """Opens a store. Returns the writer's connection and the content. Raises Damaged, unless `accept_loss` is set: then the store is rebuilt."""
    finish(path)
    if not path.exists() and not _was_there(path, options):
        try:
            create(path)
        except sqlite3.Error as error:
            raise unusable(path, error) from error
    try:
        return _open_sound(path, wait, window, options)
    except Damaged as damage:
        if not options.accept_loss:
            raise
        _accept(damage.diagnosis, options)
    return _open_sound(path, wait, window, options)


def _was_there(path: Path, options: OpenOptions) -> bool:
    try:
        mark = read_mark(path)
    except DamagedMarker:
        return True
    return bool(options.traces) or side_files(path)[0].exists() or (mark is not None and mark.revision > NO_REVISION)


def _accept(diagnosis: Diagnosis, options: OpenOptions) -> None:
    """Saves the damaged files and replaces the store by one that holds what is left."""
    rows = sorted(diagnosis.live.values(), key=lambda record: record.revision)
    with _writing(diagnosis.path):
        kept = set_aside(diagnosis)
        options.keep(diagnosis, kept)
        replace_store(diagnosis.path, (Row(record, NO_REVISION, False) for record in rows), diagnosis.newest)
    for line in diagnosis.lines():
        log.warning("damaged", path=diagnosis.path, what=line)
    log.warning("the store was made anew from what is left", objects=len(rows), damaged_files=kept)


def _open_sound(path: Path, wait: float, window: int, options: OpenOptions) -> tuple[sqlite3.Connection, Loaded]:
    reader, loaded = _read(path, window, options)
    try:
        if not loaded.identity:
            _upgrade(path, reader, options.check)
            reader.close()
            reader, loaded = _read(path, window, options)
        # Before the reader closes, so that SQLite recovers the write-ahead log only once.
        connection = open_writer(path, wait)
    finally:
        reader.close()
    try:
        # A killed process may have written data without syncing it. It was loaded, so it must be durable before the marker counts it.
        for file in (path, side_files(path)[0]):
            sync_file(file)
    except BaseException:
        connection.close()
        raise
    return connection, loaded


def _upgrade(path: Path, reader: sqlite3.Connection, check: Check) -> None:
    floor, _ = read_floor(reader, sealed=False)
    with _writing(path):
        replace_store(path, (row for row, _ in read_rows(reader, False, check)), floor)
    log.info("the store was upgraded: its rows carry checksums now", path=path)


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    """Explains errors while a store is rewritten: that needs disk space and a writable directory."""
    try:
        yield
    except (sqlite3.Error, OSError) as error:
        raise StoreError(
            f"{path} cannot be rewritten ({error}): free as much space on its disk as it uses now, and check the permissions there"
        ) from error


def _read(path: Path, window: int, options: OpenOptions) -> tuple[sqlite3.Connection, Loaded]:
    """Reads the whole store. Returns the reader's connection and the content. Raises Damaged."""
    mark, fault = _mark(path)
    sealed = _is_sealed(path, mark, options)
    check = options.check
    try:
        reader = open_reader(path)
    except sqlite3.Error as error:
        raise unusable(path, error) from error
    try:
        loaded = load(reader, sealed, window, check)
        if sealed and not _fits(mark, loaded):
            raise Damaged(_diagnose(path, reader, sealed, check, mark, fault, "it is not what its marker says"))
    except Damaged:
        reader.close()
        raise
    except UNSOUND as error:
        try:
            if is_not_damage(error):
                raise unusable(path, error) from error
            raise Damaged(_diagnose(path, reader, sealed, check, mark, fault, str(error))) from error
        finally:
            reader.close()
    except BaseException:
        reader.close()
        raise
    return reader, loaded


def _is_sealed(path: Path, mark: Mark | None, options: OpenOptions) -> bool:
    """Whether the rows carry checksums. Raises Damaged if the file is missing, or has a marker but does not look like a store."""
    if not path.exists():
        there = f", though {', '.join(options.traces)} is there" if options.traces else ""
        raise Damaged(_nothing(path, mark, f"the file is missing{there}"))
    try:
        return check_header(path) > 1
    except (ForeignFile, DamagedStore) as error:
        if mark is None and isinstance(error, ForeignFile):
            raise
        raise Damaged(_nothing(path, mark, "it does not begin as a store does")) from error


def _mark(path: Path) -> tuple[Mark | None, str]:
    """The content of the marker, and what is wrong with it (empty: nothing)."""
    try:
        mark = read_mark(path)
    except DamagedMarker as error:
        return None, f"{path.name}-mark is damaged ({error}): it is unknown whether acknowledged writes are missing"
    return (
        mark,
        f"{path.name}-mark is missing: it is unknown whether acknowledged writes are missing" if mark is None else "",
    )


def _fits(mark: Mark | None, loaded: Loaded) -> bool:
    return mark is not None and mark.identity == loaded.identity and mark.revision <= loaded.revision


def _nothing(path: Path, mark: Mark | None, why: str) -> Diagnosis:
    """The diagnosis of a store of which nothing can be read."""
    newest = NO_REVISION if mark is None else mark.revision
    missing = (Missing(Revision(1), newest, why),) if newest else ()
    return Diagnosis(path, facts=() if missing else (why,), missing=missing, newest=newest)


def _diagnose(
    path: Path, reader: sqlite3.Connection, sealed: bool, check: Check, mark: Mark | None, fault: str, first: str
) -> Diagnosis:
    """Finds out what is damaged and what is left. `first` is the error that was met: it is reported if nothing more specific is found."""
    found = salvage(reader, sealed, check, NO_REVISION if mark is None else mark.revision)
    live = live_of(found.rows.values())
    facts = [*found.facts, *holes_of(found)]
    sound = max((found.floor, *found.rows))
    missing: list[Missing] = []
    if sealed and fault:
        facts.append(fault)
    elif sealed and mark is not None and found.identity and mark.identity != found.identity:
        facts.append(f"{path.name}-mark belongs to another store: was one of the two files replaced?")
    elif sealed and mark is not None and mark.revision > sound:
        missing.append(Missing(Revision(sound + 1), mark.revision, _why_cut(path)))
    losses = losses_of(found)
    if sealed and (wrong := census_fact(found, live)):
        facts.append(wrong)
        intact = False
    else:
        intact = sealed and bool(found.rows) and not missing and all(loss.superseded for loss in losses)
    if not (facts or missing or losses):
        facts.append(first)
    return Diagnosis(path, tuple(facts), tuple(missing), losses, live, _highest(found, mark), intact and not fault)


def _highest(found: Salvaged, mark: Mark | None) -> Revision:
    """The highest revision that may ever have been assigned."""
    known = (found.floor, *found.rows, *found.bad, *found.names, NO_REVISION if mark is None else mark.revision)
    return Revision(max(known))


def _why_cut(path: Path) -> str:
    log_file = side_files(path)[0]
    if not log_file.exists():
        return f"{log_file.name} is missing, or {path.name} was replaced by an older copy"
    return f"{log_file.name} is damaged or was cut"


def look_through(path: Path, check: Check = anything) -> Loaded:
    """Reads a store that another process may be using, without its history. Raises Damaged."""
    if not path.exists():
        raise StoreError(f"there is no store at {path}")
    idle = not side_files(path)[0].exists()
    try:
        reader, loaded = _read(path, 0, OpenOptions(check=check))
    except Damaged:
        if not idle or not side_files(path)[0].exists():
            raise
        # A writer started while the store was read as one without a writer: read it again.
        reader, loaded = _read(path, 0, OpenOptions(check=check))
    reader.close()
    return loaded
