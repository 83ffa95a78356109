"""One image, from its source into the folder: layers that are missing are fetched side by side and unpacked one after the other.

Whatever happens, layers are whole or not there: they are made in a scratch folder, which goes with the pull, and renamed when complete.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from sandpool.base.clock import Clock
from sandpool.base.errors import NodeError
from sandpool.base.shares import OPERATOR
from sandpool.node.images.access import merged
from sandpool.node.images.errors import disk_full, full, pull_error
from sandpool.node.images.folder import ImageFolder, discard
from sandpool.node.images.manifest import digest_of
from sandpool.node.images.options import ImageOptions
from sandpool.node.images.parents import UnpackedLayer, covering_layer
from sandpool.node.images.progress import Progress
from sandpool.node.images.records import HoldRecord, ImageRecord, LayerAccess, NameRecord, image_record, used_by
from sandpool.node.images.source import LayerSource, Source, Wanted
from sandpool.node.images.space import NoRoom, PullSpace
from sandpool.node.images.uninterrupted import uninterrupted
from sandpool.node.images.worker import Job
from sandpool.node.images.worker_process import DiskFull, LayerDone, LayerRefused, LayerTooLarge, Unpacking, worker

_RATIO = 4  # bytes that come out for each that goes in, if one must guess
TakePlace = Callable[[], AbstractAsyncContextManager[object]]


@dataclass(frozen=True, slots=True)
class Kitchen:
    """What every pull works with."""

    folder: ImageFolder
    options: ImageOptions
    clock: Clock
    unpacking: (
        TakePlace  # a place for one layer: slow registries must not hold up others, nor many pulls fill the machine
    )
    space: PullSpace  # on whose account, and how much of the disk it may take
    tenant: str = OPERATOR


async def pull(kitchen: Kitchen, source: Source, what: str, hold: str, tell: Callable[[str], object]) -> Wanted:
    """Its layers are there when it returns, and stay as long as the hold of this name does. Raises NodeError."""
    try:
        wanted = await source.describe()
        await _complete(kitchen, source, wanted, hold, what, tell)
        records = [kitchen.folder.layer_record(layer.diff_id) for layer in wanted.layers]
        lowest = max((at for at, record in enumerate(records) if record and record.opaque_root), default=0)
        wanted = replace(wanted, lowest=lowest)
        cover = await asyncio.to_thread(_cover, kitchen.folder, wanted)
        if cover is not None:
            wanted = replace(wanted, layers=(*wanted.layers, cover.layer))
            await _complete(kitchen, cover, wanted, hold, what, lambda words: None)
        return wanted
    except DiskFull as error:
        raise disk_full(what, kitchen.folder.root) from error
    except NoRoom as error:
        raise pull_error(what, str(error)) from error
    except OSError as error:
        if full(error):
            raise disk_full(what, kitchen.folder.root) from error
        raise pull_error(what, f"{error.strerror or error} ({error.filename or kitchen.folder.root})") from error


async def _complete(
    kitchen: Kitchen, source: Source, wanted: Wanted, hold: str, what: str, tell: Callable[[str], object]
) -> None:
    """Layers that are not here, or that this source has not proved its access to, are fetched."""
    by_id = {layer.diff_id: layer for layer in wanted.layers}
    here = await asyncio.to_thread(_claim, kitchen, tuple(by_id), hold)
    missing, proved = [], []
    for diff_id, layer in by_id.items():
        access = here.get(diff_id)
        if access is None or not (access.public or await source.proves(layer, access)):
            missing.append(layer)
        elif not access.public:
            proved.append(layer)
    if missing:
        await _bring(kitchen, source, wanted, tuple(missing), what, tell)
    grants = {layer.diff_id: source.grants(layer) for layer in (*missing, *proved)}
    if grants:
        await uninterrupted(asyncio.to_thread(kitchen.folder.grant, grants))


class _Cover:
    """A source of one layer that is made here (parents.py)."""

    def __init__(self, content: bytes) -> None:
        self._content = content
        self.layer = LayerSource(digest_of(content), size=len(content), file="of folders")

    async def describe(self) -> Wanted:
        raise NotImplementedError

    async def fetch(self, layer: LayerSource, target: Path, told: Callable[[int], Awaitable[object]]) -> None:
        await uninterrupted(asyncio.to_thread(_write, target, self._content))

    async def proves(self, layer: LayerSource, access: LayerAccess) -> bool:
        return True  # it was made here, of layers that the pull has

    def grants(self, layer: LayerSource) -> LayerAccess:
        return LayerAccess()


def _write(target: Path, content: bytes) -> None:
    target.write_bytes(content)


def _cover(folder: ImageFolder, wanted: Wanted) -> _Cover | None:
    layers = []
    for layer in wanted.layers[wanted.lowest :]:
        record = folder.layer_record(layer.diff_id)
        layers.append(UnpackedLayer(folder.layer_root(layer.diff_id), frozenset(record.implied if record else ())))
    content = covering_layer(layers)
    return _Cover(content) if content else None


async def keep(kitchen: Kitchen, wanted: Wanted, names: tuple[NameRecord, ...]) -> ImageRecord:
    """From now on the image is here under these names. Its layers are held by whoever pulled them."""
    record = image_record(wanted.id, tuple(layer.diff_id for layer in wanted.layers), wanted.lowest, wanted.run)
    record = used_by(record, kitchen.tenant)
    now = kitchen.clock.now().timestamp()
    try:
        await uninterrupted(asyncio.to_thread(_keep_locked, kitchen.folder, record, names, now))
    except OSError as error:
        if full(error):
            raise disk_full(names[0].reference, kitchen.folder.root) from error
        raise pull_error(names[0].reference, f"{error.strerror} ({error.filename})") from error
    return record


def _keep_locked(folder: ImageFolder, record: ImageRecord, names: tuple[NameRecord, ...], now: float) -> None:
    with folder.locked(exclusive=True):
        folder.keep_image(record, tuple(merged(folder.name(name.reference), name) for name in names), now)


def _claim(kitchen: Kitchen, diff_ids: tuple[str, ...], hold: str) -> dict[str, LayerAccess]:
    """Makes sure that no layer goes while others are fetched; answers which are here, and who may use them."""
    folder = kitchen.folder
    with folder.locked():
        folder.hold(HoldRecord(holder=hold, image="", layers=diff_ids), kitchen.clock.now().timestamp())
        return {diff_id: folder.layer_access(diff_id) for diff_id in diff_ids if folder.has_layer(diff_id)}


async def _bring(
    kitchen: Kitchen,
    source: Source,
    wanted: Wanted,
    missing: tuple[LayerSource, ...],
    what: str,
    tell: Callable[[str], object],
) -> None:
    size = sum(layer.size for layer in missing)
    if await kitchen.space.potential(size) < size:
        raise kitchen.space.refusal()
    scratch = kitchen.folder.fresh()
    try:
        there = [kitchen.folder.layer_record(layer.diff_id) for layer in wanted.layers if layer not in missing]
        left = kitchen.options.limits.unpacked - sum(record.bytes for record in there if record)
        progress = Progress(missing, tell, kitchen.clock.monotonic)
        await _all(_Layers(kitchen, source, scratch, progress, what, left), missing)
    finally:
        await uninterrupted(asyncio.to_thread(discard, scratch))


async def _all(work: _Layers, missing: tuple[LayerSource, ...]) -> None:
    try:
        async with asyncio.TaskGroup() as group:
            for number, layer in enumerate(missing, 1):
                group.create_task(work.bring(layer, number))
    except BaseExceptionGroup as errors:
        raise _first(errors) from errors


def _first(error: BaseException) -> BaseException:
    """What went wrong first decides; what it took along does not matter."""
    while isinstance(error, BaseExceptionGroup):
        error = next((one for one in error.exceptions if isinstance(one, NodeError)), error.exceptions[0])
    return error


class _Layers:
    def __init__(
        self,
        kitchen: Kitchen,
        source: Source,
        scratch: Path,
        progress: Progress,
        what: str,
        left: int,
    ) -> None:
        self._kitchen = kitchen
        self._source = source
        self._scratch = scratch
        self._progress = progress
        self._what = what
        self._left = left  # bytes that may still be unpacked
        self._downloads = asyncio.Semaphore(kitchen.options.downloads)
        self._one_at_a_time = asyncio.Lock()  # what is left for one layer depends on the others

    async def bring(self, layer: LayerSource, number: int) -> None:
        blob, target = self._scratch / f"{number}.blob", self._scratch / str(number)
        async with self._downloads:
            await self._source.fetch(layer, blob, partial(self._fetched, layer, str(blob)))
        async with self._one_at_a_time, self._kitchen.unpacking():
            await self._unpack(layer, blob, target)
            await uninterrupted(asyncio.to_thread(self._kitchen.folder.keep_layer, target, layer.diff_id))
            self._progress.layer_done()
        blob.unlink()
        self._kitchen.space.set(str(blob), 0)

    async def _fetched(self, layer: LayerSource, part: str, size: int) -> None:
        await self._kitchen.space.wrote(part, size, 1, layer.size - size)
        self._progress.fetched(layer, size)

    async def _unpacked(self, part: str, how: Unpacking) -> None:
        """What an image unpacks to is known only when it has, and others write to the same disk."""
        await self._kitchen.space.wrote(part, how.bytes, how.files, _RATIO * (how.of - how.at))
        self._progress.unpacked(how.at, how.of)

    async def _unpack(self, layer: LayerSource, blob: Path, target: Path) -> None:
        space = self._kitchen.space
        try:
            done = await self._unpack_somehow(layer, blob, target)
        except LayerRefused as error:
            which = layer.digest or layer.file or layer.diff_id
            raise pull_error(self._what, f"layer {which} is refused: {error}") from error
        await space.wrote(str(target), done.bytes, done.files, 0)
        self._left -= done.bytes

    async def _unpack_somehow(self, layer: LayerSource, blob: Path, target: Path) -> LayerDone:
        """Into the room there is; if it does not fit, into more, as long as more can be had: nobody knows before how much it takes, and
        nothing is taken from others for what it might be."""
        space = self._kitchen.space
        room, wanted = space.room(), 0
        while True:
            try:
                return await self._unpack_into(room, layer, blob, target)
            except LayerTooLarge as error:
                if not self._by_room(error, room):
                    raise
                if room < wanted:  # which was all that could be had
                    raise space.refusal() from error
            await uninterrupted(asyncio.to_thread(discard, target))
            space.set(str(target), 0)
            before, wanted = room, max(2 * room, _RATIO * layer.size)
            room = await space.make_room(wanted)
            if room <= before:
                raise space.refusal()

    def _by_room(self, error: LayerTooLarge, room: int) -> bool:
        """Whether it was the disk that was too small for it, and not what an image may have."""
        most, entries = self._bounds(room)
        return entries < self._kitchen.options.limits.entries if error.files else most < self._left

    def _bounds(self, room: int) -> tuple[int, int]:
        return min(self._left, room), min(self._kitchen.options.limits.entries, self._kitchen.space.files(room))

    async def _unpack_into(self, room: int, layer: LayerSource, blob: Path, target: Path) -> LayerDone:
        limits = self._kitchen.options.limits
        most, entries = self._bounds(room)
        os.mkdir(target, mode=0o700)
        job = Job(str(blob), str(target), layer.diff_id, most, entries, limits.path, limits.depth)
        async with worker() as process:
            return await process.unpack(job, partial(self._unpacked, str(target)))
