"""Pulls one image from its source into the image directory: missing layers are downloaded in parallel and unpacked one after the other.

Whatever happens, a layer is complete or absent: it is unpacked in a scratch directory, which is removed with the pull, and renamed when it
is complete.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import ParamSpec, TypeVar

from sandpool.base.clock import Clock
from sandpool.base.errors import NodeError
from sandpool.base.offload import FairThreads
from sandpool.base.shares import OPERATOR
from sandpool.base.shielded import shielded
from sandpool.node.images.cover_layer import UnpackedLayer, covering_layer
from sandpool.node.images.directory import ImageDirectory, remove_tree
from sandpool.node.images.image import disk_full, is_disk_full, pull_error
from sandpool.node.images.manifest import digest_of
from sandpool.node.images.options import ImageOptions
from sandpool.node.images.records import (
    HoldRecord,
    ImageRecord,
    LayerAccess,
    NameRecord,
    image_record,
    merge_names,
    used_by,
)
from sandpool.node.images.source import LayerSource, ResolvedImage, Source
from sandpool.node.images.space import NoRoom, PullSpace
from sandpool.node.images.worker import Job
from sandpool.node.images.worker_process import DiskFull, LayerDone, LayerRefused, LayerTooLarge, Unpacking, worker

_PROGRESS_INTERVAL = 0.4  # seconds
T = TypeVar("T")
P = ParamSpec("P")


class Progress:
    """Counts only what must be fetched; layers that are there already cost nothing."""

    def __init__(
        self, layers: tuple[LayerSource, ...], on_progress: Callable[[str], object], monotonic: Callable[[], float]
    ) -> None:
        self._sizes = {layer.diff_id: layer.size for layer in layers}
        self._fetched = dict.fromkeys(self._sizes, 0)
        self._done = 0
        self._on_progress = on_progress
        self._monotonic = monotonic
        self._next = float("-inf")

    def fetched(self, layer: LayerSource, size: int) -> None:
        self._fetched[layer.diff_id] = size
        total = sum(self._sizes.values())
        self._report(
            f"pulling layer {self._number()} of {len(self._sizes)}, {amount(sum(self._fetched.values()), total)}"
        )

    def unpacked(self, at: int, of: int) -> None:
        self._report(f"unpacking layer {self._number()} of {len(self._sizes)}, {amount(at, of)}")

    def layer_done(self) -> None:
        self._done += 1

    def _number(self) -> int:
        return min(self._done + 1, len(self._sizes))

    def _report(self, text: str) -> None:
        now = self._monotonic()
        if now >= self._next:
            self._next = now + _PROGRESS_INTERVAL
            self._on_progress(text)


def amount(part: int, whole: int) -> str:
    """`31 of 80 MB`, in a unit that fits the whole."""
    unit, name = next(((size, name) for size, name in ((10**9, "GB"), (10**6, "MB")) if whole >= size), (1000, "kB"))
    digits = 1 if unit == 10**9 else 0
    return f"{part / unit:.{digits}f} of {whole / unit:.{digits}f} {name}"


_EXPANSION = 4  # assumed ratio of unpacked to compressed size
TakeSlot = Callable[[], AbstractAsyncContextManager[object]]


@dataclass(frozen=True, slots=True)
class PullContext:
    """What every pull works with."""

    directory: ImageDirectory
    options: ImageOptions
    clock: Clock
    unpacking: TakeSlot  # takes a slot for unpacking one layer: slow registries must not delay others, nor many pulls exhaust the machine
    space: PullSpace  # the tenant's share of the disk
    threads: FairThreads
    tenant: str = OPERATOR

    async def in_thread(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Runs blocking work, in the turns of the tenant."""
        return await self.threads.run(self.tenant, partial(work, *args, **kwargs))


async def pull(
    context: PullContext, source: Source, what: str, hold: str, on_progress: Callable[[str], object]
) -> ResolvedImage:
    """Pulls an image. Its layers exist when this returns, and stay as long as the hold of this name. Raises NodeError."""
    try:
        wanted = await source.describe()
        await _complete(context, source, wanted, hold, what, on_progress)
        records = [context.directory.layer_record(layer.diff_id) for layer in wanted.layers]
        lowest = max((at for at, record in enumerate(records) if record and record.opaque_root), default=0)
        wanted = replace(wanted, lowest=lowest)
        cover = await context.in_thread(_cover, context, wanted)
        if cover is not None:
            wanted = replace(wanted, layers=(*wanted.layers, cover.layer))
            await _complete(context, cover, wanted, hold, what, lambda text: None)
        return wanted
    except DiskFull as error:
        raise disk_full(what, context.directory.root) from error
    except NoRoom as error:
        raise pull_error(what, str(error)) from error
    except OSError as error:
        if is_disk_full(error):
            raise disk_full(what, context.directory.root) from error
        raise pull_error(what, f"{error.strerror or error} ({error.filename or context.directory.root})") from error


async def _complete(
    context: PullContext,
    source: Source,
    wanted: ResolvedImage,
    hold: str,
    what: str,
    on_progress: Callable[[str], object],
) -> None:
    """Fetches layers that are missing, or that this source has not proved its access to."""
    by_id = {layer.diff_id: layer for layer in wanted.layers}
    here = await context.in_thread(_claim, context, tuple(by_id), hold)
    missing, proved = [], []
    for diff_id, layer in by_id.items():
        access = here.get(diff_id)
        if access is None or not (access.public or await source.proves(layer, access)):
            missing.append(layer)
        elif not access.public:
            proved.append(layer)
    if missing:
        await _fetch_missing(context, source, wanted, tuple(missing), what, on_progress)
    grants = {layer.diff_id: source.grants(layer) for layer in (*missing, *proved)}
    if grants:
        await shielded(context.in_thread(context.directory.grant, grants))


class _Cover:
    """The source of the cover layer, which is generated here (cover_layer.py)."""

    def __init__(self, context: PullContext, content: bytes) -> None:
        self._context = context
        self._content = content
        self.layer = LayerSource(digest_of(content), size=len(content), file="of folders")

    async def describe(self) -> ResolvedImage:
        raise NotImplementedError

    async def fetch(self, layer: LayerSource, target: Path, report: Callable[[int], Awaitable[object]]) -> None:
        await shielded(self._context.in_thread(_write, target, self._content))

    async def proves(self, layer: LayerSource, access: LayerAccess) -> bool:
        return True  # generated here, from layers that the pull may use

    def grants(self, layer: LayerSource) -> LayerAccess:
        return LayerAccess()


def _write(target: Path, content: bytes) -> None:
    target.write_bytes(content)


def _cover(context: PullContext, wanted: ResolvedImage) -> _Cover | None:
    directory, layers = context.directory, []
    for layer in wanted.layers[wanted.lowest :]:
        record = directory.layer_record(layer.diff_id)
        layers.append(UnpackedLayer(directory.layer_root(layer.diff_id), frozenset(record.implied if record else ())))
    content = covering_layer(layers)
    return _Cover(context, content) if content else None


async def record_image(context: PullContext, wanted: ResolvedImage, names: tuple[NameRecord, ...]) -> ImageRecord:
    """Stores the image under these names. Its layers are held by the pull."""
    record = image_record(wanted.id, tuple(layer.diff_id for layer in wanted.layers), wanted.lowest, wanted.run)
    record = used_by(record, context.tenant)
    now = context.clock.now().timestamp()
    try:
        await shielded(context.in_thread(_keep_locked, context.directory, record, names, now))
    except OSError as error:
        if is_disk_full(error):
            raise disk_full(names[0].reference, context.directory.root) from error
        raise pull_error(names[0].reference, f"{error.strerror} ({error.filename})") from error
    return record


def _keep_locked(directory: ImageDirectory, record: ImageRecord, names: tuple[NameRecord, ...], now: float) -> None:
    with directory.locked(exclusive=True):
        directory.keep_image(record, tuple(merge_names(directory.name(name.reference), name) for name in names), now)


def _claim(context: PullContext, diff_ids: tuple[str, ...], hold: str) -> dict[str, LayerAccess]:
    """Holds these layers while others are fetched. Returns which exist, and who may use them."""
    directory = context.directory
    with directory.locked():
        directory.hold(HoldRecord(holder=hold, image="", layers=diff_ids), context.clock.now().timestamp())
        return {diff_id: directory.layer_access(diff_id) for diff_id in diff_ids if directory.has_layer(diff_id)}


async def _fetch_missing(
    context: PullContext,
    source: Source,
    wanted: ResolvedImage,
    missing: tuple[LayerSource, ...],
    what: str,
    on_progress: Callable[[str], object],
) -> None:
    size = sum(layer.size for layer in missing)
    if await context.space.potential(size) < size:
        raise context.space.refusal()
    scratch = context.directory.fresh()
    try:
        there = [context.directory.layer_record(layer.diff_id) for layer in wanted.layers if layer not in missing]
        left = context.options.limits.unpacked - sum(record.bytes for record in there if record)
        progress = Progress(missing, on_progress, context.clock.monotonic)
        await _all(_Layers(context, source, scratch, progress, what, left), missing)
    finally:
        await shielded(context.in_thread(remove_tree, scratch))


async def _all(work: _Layers, missing: tuple[LayerSource, ...]) -> None:
    try:
        async with asyncio.TaskGroup() as group:
            for number, layer in enumerate(missing, 1):
                group.create_task(work.bring(layer, number))
    except BaseExceptionGroup as errors:
        raise _first(errors) from errors


def _first(error: BaseException) -> BaseException:
    """The first error of a group; the others are consequences."""
    while isinstance(error, BaseExceptionGroup):
        error = next((one for one in error.exceptions if isinstance(one, NodeError)), error.exceptions[0])
    return error


class _Layers:
    def __init__(
        self,
        context: PullContext,
        source: Source,
        scratch: Path,
        progress: Progress,
        what: str,
        left: int,
    ) -> None:
        self._context = context
        self._source = source
        self._scratch = scratch
        self._progress = progress
        self._what = what
        self._left = left  # bytes that may still be unpacked
        self._downloads = asyncio.Semaphore(context.options.downloads)
        self._one_at_a_time = asyncio.Lock()  # the limit for one layer depends on the layers before it

    async def bring(self, layer: LayerSource, number: int) -> None:
        blob, target = self._scratch / f"{number}.blob", self._scratch / str(number)
        async with self._downloads:
            await self._source.fetch(layer, blob, partial(self._fetched, layer, str(blob)))
        async with self._one_at_a_time, self._context.unpacking():
            await self._unpack(layer, blob, target)
            await shielded(self._context.in_thread(self._context.directory.keep_layer, target, layer.diff_id))
            self._progress.layer_done()
        blob.unlink()
        self._context.space.set(str(blob), 0)

    async def _fetched(self, layer: LayerSource, part: str, size: int) -> None:
        await self._context.space.wrote(part, size, 1, layer.size - size)
        self._progress.fetched(layer, size)

    async def _unpacked(self, part: str, how: Unpacking) -> None:
        """Counts while unpacking: the unpacked size is not known before, and others write to the same disk."""
        await self._context.space.wrote(part, how.bytes, how.files, _EXPANSION * (how.of - how.at))
        self._progress.unpacked(how.at, how.of)

    async def _unpack(self, layer: LayerSource, blob: Path, target: Path) -> None:
        space = self._context.space
        try:
            done = await self._unpack_somehow(layer, blob, target)
        except LayerRefused as error:
            which = layer.digest or layer.file or layer.diff_id
            raise pull_error(self._what, f"layer {which} is refused: {error}") from error
        await space.wrote(str(target), done.bytes, done.files, 0)
        self._left -= done.bytes

    async def _unpack_somehow(self, layer: LayerSource, blob: Path, target: Path) -> LayerDone:
        """Unpacks into the room there is; if the layer does not fit, tries again with more as long as more can be made. The unpacked size
        is not known before, and no image of others is removed for a guess."""
        space = self._context.space
        room, wanted = space.room(), 0
        while True:
            try:
                return await self._unpack_into(room, layer, blob, target)
            except LayerTooLarge as error:
                if not self._limited_by_disk(error, room):
                    raise
                if room < wanted:  # more cannot be made available
                    raise space.refusal() from error
            await shielded(self._context.in_thread(remove_tree, target))
            space.set(str(target), 0)
            before, wanted = room, max(2 * room, _EXPANSION * layer.size)
            room = await space.make_room(wanted)
            if room <= before:
                raise space.refusal()

    def _limited_by_disk(self, error: LayerTooLarge, room: int) -> bool:
        """Whether the layer exceeded the room on disk, not the limit of an image."""
        most, entries = self._bounds(room)
        return entries < self._context.options.limits.entries if error.files else most < self._left

    def _bounds(self, room: int) -> tuple[int, int]:
        return min(self._left, room), min(self._context.options.limits.entries, self._context.space.files(room))

    async def _unpack_into(self, room: int, layer: LayerSource, blob: Path, target: Path) -> LayerDone:
        limits = self._context.options.limits
        most, entries = self._bounds(room)
        os.mkdir(target, mode=0o700)
        job = Job(str(blob), str(target), layer.diff_id, most, entries, limits.path, limits.depth)
        async with worker() as process:
            return await process.unpack(job, partial(self._unpacked, str(target)))
