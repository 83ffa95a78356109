"""Binds persistent volume claims when a pod first uses them, and removes their directories when the claim is deleted and no pod uses it.

Level-triggered: directories on disk are compared with the API, also after a restart. A cache never decides about a removal; a consistent
read does. All claims are listed, in pages, only if a directory's claim is unknown; later, that claim is read directly.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable
from typing import Any, Protocol

from sandpool.base.clock import Clock
from sandpool.base.errors import NodeError
from sandpool.kube.api import Api
from sandpool.kube.errors import ApiError, Conflict, Gone, Invalid, NotFound, Unreachable
from sandpool.model.core import PersistentVolumeClaim
from sandpool.model.kinds import PERSISTENT_VOLUME_CLAIMS
from sandpool.model.metadata import Key
from sandpool.model.patches import json_patch
from sandpool.node.kubelet.files import claim_spec
from sandpool.node.kubelet.references import FAILED_MOUNT, Unresolved
from sandpool.telemetry.log import logger

log = logger(__name__)

BOUND = "Bound"
PAGE = 50
"""Claims per page of a list."""


def bound_status(claim: PersistentVolumeClaim) -> dict[str, Any]:
    spec = claim_spec(claim)
    return {"phase": BOUND, "accessModes": spec.access_modes, "capacity": spec.resources.requests}


async def bind_claims(api: Api, claims: Iterable[PersistentVolumeClaim]) -> None:
    """Sets the phase of claims to Bound, where it is not yet."""
    for claim in claims:
        meta = claim.metadata
        if claim.status.phase == BOUND:
            continue
        patch = json_patch(
            [
                {"op": "test", "path": "/metadata/uid", "value": meta.uid},
                {"op": "add", "path": "/status", "value": bound_status(claim)},
            ]
        )
        try:
            await api.patch_status(PERSISTENT_VOLUME_CLAIMS, meta.name, patch, meta.namespace)
        except NotFound:
            raise Unresolved(
                FAILED_MOUNT, f'persistentvolumeclaim "{meta.name}" was deleted; create it again'
            ) from None
        except Invalid as refusal:
            if refusal.causes:
                raise
            raise Conflict(f"persistentvolumeclaim {meta.key} is another one now: {refusal}") from refusal


class ClaimDirectories(Protocol):
    """The directories of claims on this machine."""

    async def claims(self) -> Collection[str]:
        """The uids of claims that have a directory here."""
        ...

    async def remove_claim(self, uid: str) -> None: ...


def removable(kept: Iterable[str], used: Collection[str], known: Collection[str]) -> list[str]:
    """The uids of directories that no claim can ever use again."""
    return sorted(uid for uid in kept if uid not in used and uid not in known)


class ClaimCleaner:
    """Removes directories of deleted claims. `used` returns the claims of running and starting pods."""

    def __init__(
        self, api: Api, directories: ClaimDirectories, used: Callable[[], Collection[str]], clock: Clock, every: float
    ) -> None:
        self._api = api
        self._directories = directories
        self._used = used
        self._clock = clock
        self._every = every
        self._keys: dict[str, Key] = {}  # the claims of the directories, by uid

    async def run(self) -> None:
        while True:
            await self._clock.sleep(self._every)
            try:
                await self.tidy()
            except (ApiError, Unreachable, NodeError) as error:
                log.warning("deleted claims not cleaned up", error=f"{type(error).__name__}: {error}")

    async def tidy(self) -> None:
        kept = frozenset(await self._directories.claims())
        self._keys = {uid: key for uid, key in self._keys.items() if uid in kept}
        unused = removable(kept, self._used(), ())
        if not unused:
            return
        if any(uid not in self._keys for uid in unused):
            self._keys = await self._listed(kept)
            known: Collection[str] = self._keys
        else:
            known = [uid for uid in unused if await self._there(uid)]
        for uid in removable(unused, self._used(), known):
            await asyncio.sleep(0)
            await self._directories.remove_claim(uid)
            log.info("claim removed", uid=uid)

    async def _listed(self, kept: Collection[str]) -> dict[str, Key]:
        """The claims in the API that have a directory here."""
        try:
            return await self._pages(kept, PAGE)
        except Gone:  # 410: the continue token expired; list without pages
            return await self._pages(kept, 0)

    async def _pages(self, kept: Collection[str], limit: int) -> dict[str, Key]:
        found: dict[str, Key] = {}
        after = ""
        while True:
            page = await self._api.list(PERSISTENT_VOLUME_CLAIMS, limit=limit, after=after)
            metas = (claim.metadata for claim in page.items)
            found.update((meta.uid, meta.key) for meta in metas if meta.uid in kept)
            after = page.after
            if not after:
                return found
            await asyncio.sleep(0)

    async def _there(self, uid: str) -> bool:
        key = self._keys[uid]
        await asyncio.sleep(0)
        try:
            claim = await self._api.get(PERSISTENT_VOLUME_CLAIMS, key.name, key.namespace)
        except NotFound:
            return False
        return claim.metadata.uid == uid
