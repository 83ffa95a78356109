"""Opening a store: made if it is new, upgraded if it is old, and refused where it is not what was acknowledged.

Everything is read, and compared with its checksums and with the marker, before a connection is made that may write.
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
from sandpool.controlplane.store.loading import UNSOUND, load, read_floor
from sandpool.controlplane.store.log import Loaded, Row
from sandpool.controlplane.store.marker import DamagedMarker, Mark, read_mark
from sandpool.controlplane.store.replacement import finish, replace_store, set_aside
from sandpool.controlplane.store.rows import Check, anything, read_rows
from sandpool.controlplane.store.salvage import Salvaged, census_fact, holes_of, live_of, losses_of, salvage
from sandpool.controlplane.store.sqlite_file import check_header, create, in_the_way, open_reader, open_writer, unusable
from sandpool.model.metadata import NO_REVISION, Revision
from sandpool.telemetry.log import logger

log = logger(__name__)


@dataclass(frozen=True, slots=True)
class Terms:
    """What a store that is opened must be, and what may be missing."""

    accept_loss: bool = False  # start with what is left of a damaged store
    check: Check = anything  # of values that carry no checksum: of a format-1 store
    traces: tuple[str, ...] = ()  # what is there that only a cluster with a store leaves behind
    keep: Callable[[Diagnosis, Path], None] = lambda diagnosis, kept: None
    """Called before a damaged store is replaced, to keep more than its files in the directory `kept`."""


def open_store(path: Path, wait: float, window: int, terms: Terms = Terms()) -> tuple[sqlite3.Connection, Loaded]:
    """The writer's connection, and all that the store holds. Raises Damaged where something is missing, unless that was accepted."""
    finish(path)
    if not path.exists() and not _was_there(path, terms):
        try:
            create(path)
        except sqlite3.Error as error:
            raise unusable(path, error) from error
    try:
        return _open_sound(path, wait, window, terms)
    except Damaged as damage:
        if not terms.accept_loss:
            raise
        _accept(damage.diagnosis, terms)
    return _open_sound(path, wait, window, terms)


def _was_there(path: Path, terms: Terms) -> bool:
    try:
        mark = read_mark(path)
    except DamagedMarker:
        return True
    return bool(terms.traces) or side_files(path)[0].exists() or (mark is not None and mark.revision > NO_REVISION)


def _accept(diagnosis: Diagnosis, terms: Terms) -> None:
    """Keeps the damaged files and puts a store in their place that holds what is left."""
    rows = sorted(diagnosis.live.values(), key=lambda record: record.revision)
    with _writing(diagnosis.path):
        kept = set_aside(diagnosis)
        terms.keep(diagnosis, kept)
        replace_store(diagnosis.path, (Row(record, NO_REVISION, False) for record in rows), diagnosis.newest)
    for line in diagnosis.lines():
        log.warning("damaged", path=diagnosis.path, what=line)
    log.warning("the store was made anew from what is left", objects=len(rows), damaged_files=kept)


def _open_sound(path: Path, wait: float, window: int, terms: Terms) -> tuple[sqlite3.Connection, Loaded]:
    reader, loaded = _read(path, window, terms)
    try:
        if not loaded.identity:
            _upgrade(path, reader, terms.check)
            reader.close()
            reader, loaded = _read(path, window, terms)
        connection = open_writer(path, wait)  # while the reader is there, so that the write-ahead log is read once
    finally:
        reader.close()
    try:
        # What a killed process had written but not synced is read, and so must be durable, before the marker may count it.
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
    """A store that is written anew needs room, and a directory that may be written to."""
    try:
        yield
    except (sqlite3.Error, OSError) as error:
        raise StoreError(
            f"{path} cannot be written anew ({error}): make room on its disk, as much as it has now, and check who may write there"
        ) from error


def _read(path: Path, window: int, terms: Terms) -> tuple[sqlite3.Connection, Loaded]:
    """The store as it is, and the connection that read it. Raises Damaged."""
    mark, fault = _mark(path)
    sealed = _is_sealed(path, mark, terms)
    check = terms.check
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
            if in_the_way(error):
                raise unusable(path, error) from error
            raise Damaged(_diagnose(path, reader, sealed, check, mark, fault, str(error))) from error
        finally:
            reader.close()
    except BaseException:
        reader.close()
        raise
    return reader, loaded


def _is_sealed(path: Path, mark: Mark | None, terms: Terms) -> bool:
    """Whether its rows carry checksums. Raises Damaged if it is not there, or not to be recognised though its marker is there."""
    if not path.exists():
        there = f", though {', '.join(terms.traces)} is there" if terms.traces else ""
        raise Damaged(_nothing(path, mark, f"the file is missing{there}"))
    try:
        return check_header(path) > 1
    except (ForeignFile, DamagedStore) as error:
        if mark is None and isinstance(error, ForeignFile):
            raise
        raise Damaged(_nothing(path, mark, "it does not begin as a store does")) from error


def _mark(path: Path) -> tuple[Mark | None, str]:
    """What the marker says, and what is wrong with it."""
    try:
        mark = read_mark(path)
    except DamagedMarker as error:
        return None, f"{path.name}-mark is damaged ({error}): whether acknowledged writes are missing cannot be told"
    return (
        mark,
        f"{path.name}-mark is missing: whether acknowledged writes are missing cannot be told" if mark is None else "",
    )


def _fits(mark: Mark | None, loaded: Loaded) -> bool:
    return mark is not None and mark.identity == loaded.identity and mark.revision <= loaded.revision


def _nothing(path: Path, mark: Mark | None, why: str) -> Diagnosis:
    """Nothing at all can be read."""
    newest = NO_REVISION if mark is None else mark.revision
    missing = (Missing(Revision(1), newest, why),) if newest else ()
    return Diagnosis(path, facts=() if missing else (why,), missing=missing, newest=newest)


def _diagnose(
    path: Path, reader: sqlite3.Connection, sealed: bool, check: Check, mark: Mark | None, fault: str, first: str
) -> Diagnosis:
    """`first` is what made us look: it is told where nothing more exact is found."""
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
    """Above every revision that may ever have been given."""
    known = (found.floor, *found.rows, *found.bad, *found.names, NO_REVISION if mark is None else mark.revision)
    return Revision(max(known))


def _why_cut(path: Path) -> str:
    log_file = side_files(path)[0]
    if not log_file.exists():
        return f"{log_file.name} is missing, or {path.name} was replaced by an older copy"
    return f"{log_file.name} is damaged or was cut"


def look_through(path: Path, check: Check = anything) -> Loaded:
    """A store that may be in use by another process, without its history. Raises Damaged."""
    if not path.exists():
        raise StoreError(f"there is no store at {path}")
    idle = not side_files(path)[0].exists()
    try:
        reader, loaded = _read(path, 0, Terms(check=check))
    except Damaged:
        if not idle or not side_files(path)[0].exists():
            raise
        reader, loaded = _read(
            path, 0, Terms(check=check)
        )  # somebody began to write to it while it was read as one that nobody does
    reader.close()
    return loaded
