"""Bringing images in from files."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path

from sandpool.base.errors import NodeError
from sandpool.node.images.archive import Files, open_files
from sandpool.node.images.archive_source import ArchiveSource, Found, find
from sandpool.node.images.errors import disk_full, full, pull_error
from sandpool.node.images.folder import discard
from sandpool.node.images.manifest import refusal
from sandpool.node.images.pull import Kitchen, keep, pull
from sandpool.node.images.records import IMPORTED, NameRecord
from sandpool.node.images.reference import Name, parse_name
from sandpool.node.images.tar import BadArchive
from sandpool.node.images.uninterrupted import uninterrupted


async def import_archive(
    kitchen: Kitchen, path: Path, name: Name | None, tell: Callable[[str], object]
) -> tuple[NameRecord, ...]:
    """All of its images, or none of them. Raises NodeError."""
    scratch = kitchen.folder.fresh()
    holds: list[str] = []
    try:
        files = await uninterrupted(asyncio.to_thread(_open, kitchen, path, scratch))
        try:
            found = await asyncio.to_thread(find, files, kitchen.options, str(path))
            plan = named(found, name, str(path))
            return await _bring(kitchen, files, plan, path, holds, tell)
        finally:
            files.close()
    finally:
        for hold in holds:
            kitchen.folder.release(hold)
        await uninterrupted(asyncio.to_thread(discard, scratch))


async def _bring(
    kitchen: Kitchen,
    files: Files,
    plan: tuple[tuple[Found, tuple[Name, ...]], ...],
    path: Path,
    holds: list[str],
    tell: Callable[[str], object],
) -> tuple[NameRecord, ...]:
    """`holds` grows: each keeps the layers of one image until all are there."""
    there = []
    for found, names in plan:
        source = ArchiveSource(files, found, kitchen.options, str(path))
        holds.append(f"import {os.urandom(8).hex()}")
        there.append((await pull(kitchen, source, str(path), holds[-1], tell), names))
    at = kitchen.clock.now().timestamp()
    written: list[NameRecord] = []
    for wanted, names in there:
        records = tuple(
            NameRecord(reference=str(name), id=wanted.id, digests=wanted.digests, at=at, origin=IMPORTED)
            for name in names
        )
        await keep(kitchen, wanted, records)
        written += records
    return tuple(written)


def named(found: tuple[Found, ...], name: Name | None, what: str) -> tuple[tuple[Found, tuple[Name, ...]], ...]:
    """Which image gets which names. Pure."""
    if not found:
        raise refusal(what, "there is no image in it")
    if name is not None:
        if len(found) > 1:
            raise refusal(what, f"{len(found)} images are in it, which cannot have one name; leave the name out")
        return ((found[0], (name,)),)
    plan = tuple((one, tuple(map(parse_name, one.names))) for one in found)
    if not all(names for _, names in plan):
        raise NodeError("InvalidImageName", f"{what} does not say what its image is called; give a name after it")
    return plan


def _open(kitchen: Kitchen, path: Path, scratch: Path) -> Files:
    try:
        return open_files(path, kitchen.options.limits.unpacked, scratch)
    except BadArchive as error:
        raise refusal(str(path), str(error)) from error
    except OSError as error:
        if full(error):
            raise disk_full(str(path), kitchen.folder.root) from error
        raise pull_error(str(path), error.strerror or os.strerror(error.errno or 0)) from error
