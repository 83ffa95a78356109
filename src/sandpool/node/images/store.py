"""The images of this machine: what pods ask for is found or pulled, held while it is needed, and removed afterwards.

One ImageStore belongs to one process; several processes may share a folder (folder.py). What may take long happens in threads
or in a worker process. Credentials live as long as the call that brings them.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from sandpool.base.clock import Clock
from sandpool.base.errors import NodeError
from sandpool.base.shares import OPERATOR
from sandpool.node.images import upkeep
from sandpool.node.images.access import may_use, proof
from sandpool.node.images.allowed import Reach, registry_reach
from sandpool.node.images.credentials import matching
from sandpool.node.images.errors import disk_full, full, pull_error
from sandpool.node.images.folder import ImageFolder
from sandpool.node.images.image import Image, RootFs
from sandpool.node.images.importing import import_archive
from sandpool.node.images.local_folder import folder_image
from sandpool.node.images.options import ImageOptions
from sandpool.node.images.pace import Place
from sandpool.node.images.places import Places, quiet
from sandpool.node.images.port import Credential
from sandpool.node.images.prune import PruneRules
from sandpool.node.images.pull import Kitchen, keep, pull
from sandpool.node.images.records import IMPORTED, PULLED, HoldRecord, ImageRecord, NameRecord, used_by
from sandpool.node.images.reference import Folder, HostFiles, Name, parse, parse_name
from sandpool.node.images.shared import Shared, Tell, Work
from sandpool.node.images.space import ImageSpace
from sandpool.node.images.uninterrupted import uninterrupted
from sandpool.node.network.egress.lookups import Lookups
from sandpool.node.network.egress.lookups import Places as Names
from sandpool.node.network.egress.outside import resolve
from sandpool.telemetry.log import logger

log = logger(__name__)

LOOKUPS, LOOKUPS_OF_A_PULL = 64, 4  # names of registries that are looked up at once: by all, who share them, and by one


@dataclass(frozen=True, slots=True)
class _Asked:
    """Several who ask for the same share one pull."""

    name: Name
    credentials: tuple[Credential, ...]
    tenant: str = ""
    everybody: bool = False


class ImageStore:
    """Implements `Images`. Between `open` and `close` only."""

    def __init__(self, folder: Path, clock: Clock, options: ImageOptions = ImageOptions()) -> None:
        self._folder = ImageFolder(folder, f"{os.getpid()}-{os.urandom(6).hex()}")
        self._unpackers = Places(options.unpackers, clock, slow_ones_give_way=False)
        self._space = ImageSpace(self._folder, clock, options.leave)
        self._options = options
        self._clock = clock
        self._pulls: Shared[ImageRecord] = Shared()
        self._places = Places(options.pulls, clock)
        self._large = Places(options.large, clock)
        self._names = Names(resolve, LOOKUPS)

    async def open(self) -> None:
        """Takes away what a process that died left behind, and what has not been used for long."""
        try:
            await uninterrupted(asyncio.to_thread(self._folder.open))
        except OSError as error:
            why = f"{error.strerror} ({error.filename})"
            raise NodeError("ImagesUnavailable", f"the folder of images cannot be used: {why}") from error
        await self.prune()

    async def close(self) -> None:
        """Ends pulls, and forgets all holders."""
        await self._pulls.close()
        await self._names.close()
        await uninterrupted(asyncio.to_thread(self._folder.close))

    async def take(
        self,
        reference: str,
        *,
        holder: str,
        tenant: str = "",
        policy: str = "",
        credentials: Sequence[Credential] = (),
        progress: Callable[[str], object] = quiet,
    ) -> Image:
        match parse(reference):
            case HostFiles():
                return Image(reference, "", RootFs(host=True))
            case Folder(path):
                return await asyncio.to_thread(folder_image, reference, path, self._options.allowed_folders)
            case name:
                with self._telling(name):
                    record = await self._take(name, holder, tenant, policy, tuple(credentials), progress)
        layers = tuple(map(self._folder.layer_root, record.layers[record.lowest :]))
        return Image(reference, record.id, RootFs(layers), record.config)

    def release(self, holder: str) -> None:
        self._folder.release(holder)

    @contextmanager
    def _telling(self, name: Name) -> Iterator[None]:
        """What the disk does, in a pod's words."""
        try:
            yield
        except OSError as error:
            if full(error):
                raise disk_full(str(name), self._folder.root) from error
            raise pull_error(str(name), f"{error.strerror or error} ({error.filename or self._folder.root})") from error

    async def _take(
        self, name: Name, holder: str, tenant: str, policy: str, credentials: tuple[Credential, ...], progress: Tell
    ) -> ImageRecord:
        always = policy == "Always" or (not policy and name.tag == "latest" and not name.digest)
        if credentials:  # which a tenant wrote, and patterns of it take long to read
            credentials = await asyncio.to_thread(matching, credentials, name)
        proofs = tuple(proof(self._folder.key, name, one) for one in credentials)
        found = await uninterrupted(asyncio.to_thread(self._find, name, holder, tenant, always, proofs))
        if found is not None:
            return found
        if policy == "Never":
            raise NodeError(
                "ErrImageNeverPull",
                f"image {name} is not on this machine for this pod and its pull policy is Never: it is not here, or came with a login "
                "that is not in imagePullSecrets. `sandpool image pull` or `sandpool image import` bring it for everybody",
            )
        return await self._pull_shared(_Asked(name, credentials, tenant), holder, progress)

    async def pull(self, reference: str, credentials: Sequence[Credential] = (), progress: Tell = quiet) -> str:
        """Asks the registry even for what was imported, and answers the image's id. Nobody holds it afterwards. It is the
        operator who pulls: every pod may have the image, whatever login it took."""
        holder = f"pull of {reference}"
        name = parse_name(reference)
        try:
            return (await self._pull_shared(_Asked(name, tuple(credentials), everybody=True), holder, progress)).id
        finally:
            self.release(holder)

    async def _pull_shared(self, asked: _Asked, holder: str, progress: Tell) -> ImageRecord:
        self._check_allowed(asked.name)
        async with self._pulls.join(asked, partial(self._begin, asked), progress) as record:
            await uninterrupted(asyncio.to_thread(self._hold, record, holder))
        await self._prune_quietly()
        return record

    def _find(self, name: Name, holder: str, tenant: str, always: bool, proofs: tuple[str, ...]) -> ImageRecord | None:
        """The image, held, if it is here and this pod may have it; from now on its tenant shares what it takes."""
        found = self._held(name, holder, always, proofs)
        if found is not None and tenant and used_by(found, tenant) is not found:
            with self._folder.locked(exclusive=True):
                self._folder.note_use(found.id, tenant, self._clock.now().timestamp())
        return found

    def _held(self, name: Name, holder: str, always: bool, proofs: tuple[str, ...]) -> ImageRecord | None:
        """One that was imported is never asked of a registry: who imported it decided."""
        with self._folder.locked():
            for known in self._known(name):
                if not may_use(known, proofs) or (always and known.origin != IMPORTED):
                    continue
                record = self._folder.image(known.id)
                if record is not None:
                    self._hold_locked(record, holder)
                    return record
        return None

    def _known(self, name: Name) -> Iterator[NameRecord]:
        """What stands for a name; a digest may have come here under a tag."""
        known = self._folder.name(str(name))
        if known is not None:
            yield known
        for other in self._folder.all_names() if name.digest else ():
            if name.digest in other.digests:
                place = parse_name(other.reference)
                if (place.registry, place.repository) == (name.registry, name.repository):
                    yield other

    def _hold(self, record: ImageRecord, holder: str) -> None:
        with self._folder.locked():
            self._hold_locked(record, holder)

    def _hold_locked(self, record: ImageRecord, holder: str) -> None:
        hold = HoldRecord(holder=holder, image=record.id, layers=record.layers)
        self._folder.hold(hold, self._clock.now().timestamp())

    def _check_allowed(self, name: Name) -> None:
        if registry_reach(name, self._options) is Reach.NOWHERE:
            raise NodeError(
                "ErrImagePull",
                f"image {name} is not allowed: {name.registry} is not a registry that may be pulled from. Whoever starts the "
                "cluster decides that: `--registry`",
            )

    def _begin(self, asked: _Asked) -> Work[ImageRecord]:
        hold = f"pull {os.urandom(8).hex()}"
        return Work(partial(self._pull_told, asked, hold), lambda: self._folder.release(hold))

    async def _pull_told(self, asked: _Asked, hold: str, tell: Tell) -> ImageRecord:
        """What goes wrong is told without where it did: errors are kept for a while, and the places in them keep what was pulled."""
        try:
            async with self._places.one(asked.tenant, tell) as place:
                with self._space.pull(asked.tenant, place.at_work) as space:
                    unpacking = partial(self._unpacking, asked.tenant, place)
                    kitchen = Kitchen(self._folder, self._options, self._clock, unpacking, space, asked.tenant)
                    return await self._pull(kitchen, asked, place, hold, tell)
        except NodeError as error:
            told = NodeError(error.reason, error.message)
        raise told

    @asynccontextmanager
    async def _unpacking(self, tenant: str, place: Place) -> AsyncIterator[None]:
        with place.at_work():
            async with self._unpackers.one(tenant):
                yield

    @asynccontextmanager
    async def _reading(self, tenant: str, place: Place) -> AsyncIterator[Place]:
        """A place for a large document; waiting for it is not the registry's slowness."""
        async with AsyncExitStack() as stack:
            with place.at_work():
                large = await stack.enter_async_context(self._large.one(tenant))
            yield large

    async def _pull(self, kitchen: Kitchen, asked: _Asked, place: Place, hold: str, tell: Tell) -> ImageRecord:
        from sandpool.node.images.download import RegistrySource  # aiohttp: only who pulls pays for it
        from sandpool.node.images.lines import Lines

        await self._space.look()
        name, large = asked.name, partial(self._reading, asked.tenant, place)
        lookups = Lookups(self._names, LOOKUPS_OF_A_PULL, self._options.patience, asked.tenant)
        async with Lines(self._options, large, place.got, lookups=lookups) as lines:
            source = RegistrySource(
                lines, name, asked.credentials, self._options, self._clock, everybody=asked.everybody
            )
            wanted = await pull(kitchen, source, str(name), hold, tell)
        record = NameRecord(
            reference=str(name),
            id=wanted.id,
            digests=wanted.digests,
            at=self._clock.now().timestamp(),
            origin=PULLED,
            public=source.public,
            proofs=(proof(self._folder.key, name, source.used),) if source.used is not None else (),
        )
        kept = await keep(kitchen, wanted, (record,))
        await self._space.look()  # what is stored now is counted before what was under way is forgotten
        log.info("image pulled", image=str(name), id=kept.id)
        return kept

    async def import_archive(self, path: Path, name: str = "", progress: Tell = quiet) -> tuple[NameRecord, ...]:
        """The images of a file or folder, under the names that they have in it, or one under the name that is given."""
        with self._space.pull(OPERATOR) as space:
            unpacking = partial(self._unpackers.one, OPERATOR)
            kitchen = Kitchen(self._folder, self._options, self._clock, unpacking, space)
            return await import_archive(kitchen, path, parse_name(name) if name else None, progress)

    async def listed(self) -> tuple[upkeep.Listed, ...]:
        return await asyncio.to_thread(upkeep.listed, self._folder)

    async def remove(self, wanted: str) -> upkeep.Removed:
        """By name, or by id or the start of one. ImageUnknown, ImageHeld."""
        target: Name | str = wanted if wanted.startswith("sha256:") else parse_name(wanted)
        return await uninterrupted(asyncio.to_thread(upkeep.remove, self._folder, target))

    async def prune(self, rules: PruneRules | None = None) -> upkeep.Removed:
        rules = rules or PruneRules(self._options.unused_for, self._options.max_bytes)
        now = self._clock.now().timestamp()
        return await uninterrupted(asyncio.to_thread(upkeep.prune, self._folder, rules, now))

    async def _prune_quietly(self) -> None:
        """After a pull, which has succeeded whatever becomes of this."""
        try:
            removed = await self.prune()
        except OSError as error:
            log.warning("images could not be pruned", error=str(error))
        else:
            if removed.images:
                log.info("images removed", images=", ".join(removed.images), bytes=removed.bytes)
