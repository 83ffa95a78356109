"""The images of this machine: what pods ask for is found or pulled, held while it is needed, and removed afterwards.

One ImageStore belongs to one process; several processes may share a directory (directory.py). Slow work runs in threads or in a worker
process. Credentials live only as long as the call that brings them.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import ParamSpec, TypeVar

from sandpool.base.clock import Clock
from sandpool.base.errors import NodeError
from sandpool.base.offload import FairThreads
from sandpool.base.shares import OPERATOR
from sandpool.base.shielded import shielded
from sandpool.node.images import garbage_collection
from sandpool.node.images.archive import import_archive
from sandpool.node.images.credentials import matching
from sandpool.node.images.directory import ImageDirectory
from sandpool.node.images.image import Credential, Image, RootFs, disk_full, is_disk_full, pull_error
from sandpool.node.images.options import ImageOptions
from sandpool.node.images.prune import PruneRules
from sandpool.node.images.pull import PullContext, pull, record_image
from sandpool.node.images.pull_slots import PullSlot, PullSlots, ignore_progress
from sandpool.node.images.records import (
    IMPORTED,
    PULLED,
    HoldRecord,
    ImageRecord,
    NameRecord,
    may_use,
    proof,
    read_record,
    used_by,
)
from sandpool.node.images.reference import DirectoryReference, HostReference, ImageName, parse, parse_name
from sandpool.node.images.registry_policy import Reach, registry_reach
from sandpool.node.images.singleflight import Flight, OnProgress, SingleFlight
from sandpool.node.images.space import ImageSpace
from sandpool.node.network.egress.outside import Lookups, resolve
from sandpool.node.network.egress.outside import LookupSlots as LookupSlots
from sandpool.telemetry.log import logger


def directory_image(reference: str, path: str, allowed: Sequence[Path]) -> Image:
    """A directory of this machine as an image. Links are resolved before the path is compared with what is allowed, and the image holds the
    resolved directory."""
    if not path.startswith("/") or "\0" in path:
        raise NodeError(
            "InvalidImageName", f"image {reference!r}: write dir: and an absolute path, as in dir:/srv/roots/debian"
        )
    real = Path(os.path.realpath(path))
    if not any(real.is_relative_to(os.path.realpath(directory)) for directory in allowed):
        may = (
            f"only directories below {', '.join(map(str, allowed))} may be used"
            if allowed
            else "no directory may be used"
        )
        raise NodeError(
            "ErrImagePull",
            f"image {reference!r} is not allowed: {may}. Whoever starts the cluster decides that: `--allow-image-folder`",
        )
    if not real.is_dir():
        raise NodeError("ErrImagePull", f"image {reference!r}: {real} is not a directory; create it, or name another")
    return Image(reference, "", RootFs(layers=(real,)))


log = logger(__name__)

T = TypeVar("T")
P = ParamSpec("P")
_THREADS = 5  # of which one tenant has at most four
LOOKUPS, LOOKUPS_OF_A_PULL = 64, 4  # concurrent DNS lookups: of all pulls, shared by tenants, and of one pull


@dataclass(frozen=True, slots=True)
class _PullKey:
    """Callers with the same key share one pull."""

    name: ImageName
    credentials: tuple[Credential, ...]
    tenant: str = ""
    everybody: bool = False


class ImageStore:
    """Implements `Images`. Between `open` and `close` only."""

    def __init__(self, directory: Path, clock: Clock, options: ImageOptions = ImageOptions()) -> None:
        self.directory = ImageDirectory(directory, f"{os.getpid()}-{os.urandom(6).hex()}")
        self._unpackers = PullSlots(options.unpackers, clock, slow_ones_give_way=False)
        self.threads = FairThreads("sandpool-images", _THREADS)
        self.space = ImageSpace(self.directory, clock, options.leave, self.threads)
        self._options = options
        self._clock = clock
        self._pulls: SingleFlight[ImageRecord] = SingleFlight()
        self.pull_slots = PullSlots(options.pulls, clock)
        self._large_slots = PullSlots(options.large, clock)
        self._lookup_slots = LookupSlots(resolve, LOOKUPS)

    async def open(self, *, prune: bool = True) -> None:
        """Removes what dead processes left and, with `prune`, images unused for long. A node does that only later, after a pull: sandboxes of a dead
        process may still run on images that nobody holds yet."""
        try:
            await self._in_thread(OPERATOR, self.directory.open)
        except OSError as error:
            why = f"{error.strerror} ({error.filename})"
            raise NodeError("ImagesUnavailable", f"the image directory cannot be used: {why}") from error
        if prune:
            await self.prune()

    async def close(self) -> None:
        """Cancels pulls, and releases all holders."""
        await self._pulls.close()
        await self._lookup_slots.close()
        await self._in_thread(OPERATOR, self.directory.close)
        self.threads.close()

    async def _in_thread(self, tenant: str, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Runs blocking work to its end, even if the caller is cancelled. Tenants take turns."""
        return await shielded(self.threads.run(tenant, partial(work, *args, **kwargs)))

    async def take(
        self,
        reference: str,
        *,
        holder: str,
        tenant: str = "",
        policy: str = "",
        credentials: Sequence[Credential] = (),
        progress: Callable[[str], object] = ignore_progress,
    ) -> Image:
        match parse(reference):
            case HostReference():
                return Image(reference, "", RootFs(host=True))
            case DirectoryReference(path):
                allowed = self._options.allowed_directories
                return await self._in_thread(tenant, directory_image, reference, path, allowed)
            case name:
                with self._translated_errors(name):
                    record = await self._take(name, holder, tenant, policy, tuple(credentials), progress)
        layers = tuple(map(self.directory.layer_root, record.layers[record.lowest :]))
        return Image(reference, record.id, RootFs(layers), record.config)

    async def hold(self, image: str, holder: str) -> None:
        await self._in_thread(OPERATOR, self._hold_by_id, image, holder)

    def _hold_by_id(self, image: str, holder: str) -> None:
        with self.directory.locked():
            record = read_record(self.directory.image_path(image), ImageRecord)
            if record is not None:
                self._hold_locked(record, holder)

    def release(self, holder: str) -> None:
        self.directory.release(holder)

    @contextmanager
    def _translated_errors(self, name: ImageName) -> Iterator[None]:
        """Turns errors of the disk into errors for a pod's status."""
        try:
            yield
        except OSError as error:
            if is_disk_full(error):
                raise disk_full(str(name), self.directory.root) from error
            raise pull_error(
                str(name), f"{error.strerror or error} ({error.filename or self.directory.root})"
            ) from error

    async def _take(
        self,
        name: ImageName,
        holder: str,
        tenant: str,
        policy: str,
        credentials: tuple[Credential, ...],
        progress: OnProgress,
    ) -> ImageRecord:
        always = policy == "Always" or (not policy and name.tag == "latest" and not name.digest)
        if credentials:  # written by a tenant: matching its patterns may take long
            credentials = await self._in_thread(tenant, matching, credentials, name)
        proofs = tuple(proof(self.directory.key, name, one) for one in credentials)
        found = await self._in_thread(tenant, self._find, name, holder, tenant, always, proofs)
        if found is not None:
            return found
        if policy == "Never":
            raise NodeError(
                "ErrImageNeverPull",
                f"image {name} is not available to this pod and its pull policy is Never: it is not on this machine, or came with a login "
                "that is not in imagePullSecrets. `sandpool image pull` or `sandpool image import` bring it for everybody",
            )
        return await self._pull_shared(_PullKey(name, credentials, tenant), holder, progress)

    async def pull(
        self, reference: str, credentials: Sequence[Credential] = (), progress: OnProgress = ignore_progress
    ) -> str:
        """Pulls an image on behalf of the operator, even if it was imported, and returns its id. It is not held afterwards. Every pod may
        use it, whatever login it took."""
        holder = f"pull of {reference}"
        name = parse_name(reference)
        try:
            return (await self._pull_shared(_PullKey(name, tuple(credentials), everybody=True), holder, progress)).id
        finally:
            self.release(holder)

    async def _pull_shared(self, key: _PullKey, holder: str, progress: OnProgress) -> ImageRecord:
        self._check_allowed(key.name)
        async with self._pulls.join(key, partial(self._begin, key), progress) as record:
            await self._in_thread(key.tenant, self._hold, record, holder)
        await self._prune_quietly(key.tenant)
        return record

    def _find(
        self, name: ImageName, holder: str, tenant: str, always: bool, proofs: tuple[str, ...]
    ) -> ImageRecord | None:
        """Returns the image, held, if it exists and this pod may use it; from now on its tenant shares the cost."""
        found = self._held(name, holder, always, proofs)
        if found is not None and tenant and used_by(found, tenant) is not found:
            with self.directory.locked(exclusive=True):
                self.directory.note_use(found.id, tenant, self._clock.now().timestamp())
        return found

    def _held(self, name: ImageName, holder: str, always: bool, proofs: tuple[str, ...]) -> ImageRecord | None:
        """An imported image is never pulled again: importing it was the operator's decision."""
        with self.directory.locked():
            for known in self._known(name):
                if not may_use(known, proofs) or (always and known.origin != IMPORTED):
                    continue
                record = self.directory.image(known.id)
                if record is not None:
                    self._hold_locked(record, holder)
                    return record
        return None

    def _known(self, name: ImageName) -> Iterator[NameRecord]:
        """The records of a name; a digest may have been pulled under a tag."""
        known = self.directory.name(str(name))
        if known is not None:
            yield known
        for other in self.directory.all_names() if name.digest else ():
            if name.digest in other.digests:
                slot = parse_name(other.reference)
                if (slot.registry, slot.repository) == (name.registry, name.repository):
                    yield other

    def _hold(self, record: ImageRecord, holder: str) -> None:
        with self.directory.locked():
            self._hold_locked(record, holder)

    def _hold_locked(self, record: ImageRecord, holder: str) -> None:
        hold = HoldRecord(holder=holder, image=record.id, layers=record.layers)
        self.directory.hold(hold, self._clock.now().timestamp())

    def _check_allowed(self, name: ImageName) -> None:
        if registry_reach(name, self._options) is Reach.NOWHERE:
            raise NodeError(
                "ErrImagePull",
                f"image {name} is not allowed: {name.registry} is not a registry that may be pulled from. Whoever starts the "
                "cluster decides that: `--registry`",
            )

    def _begin(self, key: _PullKey) -> Flight[ImageRecord]:
        hold = f"pull {os.urandom(8).hex()}"
        return Flight(partial(self._pull_in_slot, key, hold), lambda: self.directory.release(hold))

    async def _pull_in_slot(self, key: _PullKey, hold: str, on_progress: OnProgress) -> ImageRecord:
        """The error is raised anew, without its traceback: errors are kept for a while, and the frames of a traceback would keep what was
        pulled in memory."""
        try:
            async with self.pull_slots.acquire(key.tenant, on_progress) as slot:
                with self.space.pull(key.tenant, slot.at_work) as space:
                    unpacking = partial(self._unpacking, key.tenant, slot)
                    context = PullContext(
                        self.directory, self._options, self._clock, unpacking, space, self.threads, key.tenant
                    )
                    return await self._pull(context, key, slot, hold, on_progress)
        except NodeError as error:
            plain = NodeError(error.reason, error.message)
        raise plain

    @asynccontextmanager
    async def _unpacking(self, tenant: str, slot: PullSlot) -> AsyncIterator[None]:
        with slot.at_work():
            async with self._unpackers.acquire(tenant):
                yield

    @asynccontextmanager
    async def _reading(self, tenant: str, slot: PullSlot) -> AsyncIterator[PullSlot]:
        """Takes a slot for a large document; waiting for it does not count as slowness of the registry."""
        async with AsyncExitStack() as stack:
            with slot.at_work():
                large = await stack.enter_async_context(self._large_slots.acquire(tenant))
            yield large

    async def _pull(
        self, context: PullContext, key: _PullKey, slot: PullSlot, hold: str, on_progress: OnProgress
    ) -> ImageRecord:
        from sandpool.node.images.http_client import RegistryConnections
        from sandpool.node.images.registry_source import RegistrySource  # imports aiohttp, which only pulls need

        await self.space.look(key.tenant)
        name, large = key.name, partial(self._reading, key.tenant, slot)
        lookups = Lookups(self._lookup_slots, LOOKUPS_OF_A_PULL, self._options.patience, key.tenant)
        async with RegistryConnections(self._options, large, slot.got, lookups=lookups) as connections:
            source = RegistrySource(
                connections,
                name,
                key.credentials,
                self._options,
                self._clock,
                context.in_thread,
                everybody=key.everybody,
            )
            wanted = await pull(context, source, str(name), hold, on_progress)
        record = NameRecord(
            reference=str(name),
            id=wanted.id,
            digests=wanted.digests,
            at=self._clock.now().timestamp(),
            origin=PULLED,
            public=source.public,
            proofs=(proof(self.directory.key, name, source.used),) if source.used is not None else (),
        )
        kept = await record_image(context, wanted, (record,))
        await self.space.look(key.tenant)  # count the stored image before its pull is dropped from the count
        log.info("image pulled", image=str(name), id=kept.id)
        return kept

    async def import_archive(
        self, path: Path, name: str = "", progress: OnProgress = ignore_progress
    ) -> tuple[NameRecord, ...]:
        """The images of a file or directory, under the names that they have in it, or one under the name that is given."""
        with self.space.pull(OPERATOR) as space:
            unpacking = partial(self._unpackers.acquire, OPERATOR)
            context = PullContext(self.directory, self._options, self._clock, unpacking, space, self.threads)
            return await import_archive(context, path, parse_name(name) if name else None, progress)

    async def listed(self) -> tuple[garbage_collection.Listed, ...]:
        return await self._in_thread(OPERATOR, garbage_collection.listed, self.directory)

    async def remove(self, wanted: str) -> garbage_collection.Removed:
        """By name, or by id or the start of one. ImageUnknown, ImageHeld."""
        target: ImageName | str = wanted if wanted.startswith("sha256:") else parse_name(wanted)
        return await self._in_thread(OPERATOR, garbage_collection.remove, self.directory, target)

    async def prune(self, rules: PruneRules | None = None, tenant: str = OPERATOR) -> garbage_collection.Removed:
        rules = rules or PruneRules(self._options.unused_for, self._options.max_bytes)
        now = self._clock.now().timestamp()
        return await self._in_thread(tenant, garbage_collection.prune, self.directory, rules, now)

    async def _prune_quietly(self, tenant: str) -> None:
        """Prunes after a pull of this tenant; an error here does not fail the pull."""
        try:
            removed = await self.prune(tenant=tenant)
        except OSError as error:
            log.warning("images could not be pruned", error=str(error))
        else:
            if removed.images:
                log.info("images removed", images=", ".join(removed.images), bytes=removed.bytes)
