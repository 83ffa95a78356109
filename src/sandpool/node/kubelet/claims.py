"""Persistent volume claims on a machine where nobody else binds them: bound when a pod first uses them, their folders removed
when the claim is gone and no pod has it any more.

Level-triggered: what is on disk is compared with what the API has, also after a restart. Nothing is removed on the word of a
cache: a consistent read decides. All claims are listed, in pages, only for a folder of which nobody knows whose it is; then its own claim is read.
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
"""Claims that are in memory at once."""


def bound_status(claim: PersistentVolumeClaim) -> dict[str, Any]:
    spec = claim_spec(claim)
    return {"phase": BOUND, "accessModes": spec.access_modes, "capacity": spec.resources.requests}


async def bind_claims(api: Api, claims: Iterable[PersistentVolumeClaim]) -> None:
    """Says Bound of those that do not say so yet."""
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


class ClaimFolders(Protocol):
    """Where claims are kept on this machine."""

    async def claims(self) -> Collection[str]:
        """The uids of those that have a folder here."""
        ...

    async def remove_claim(self, uid: str) -> None: ...


def removable(kept: Iterable[str], used: Collection[str], known: Collection[str]) -> list[str]:
    """The folders that nobody can ever want again."""
    return sorted(uid for uid in kept if uid not in used and uid not in known)


class ClaimKeeper:
    """`used` are the claims of pods that run or start."""

    def __init__(
        self, api: Api, folders: ClaimFolders, used: Callable[[], Collection[str]], clock: Clock, every: float
    ) -> None:
        self._api = api
        self._folders = folders
        self._used = used
        self._clock = clock
        self._every = every
        self._keys: dict[str, Key] = {}  # whose folders these are, by uid

    async def run(self) -> None:
        while True:
            await self._clock.sleep(self._every)
            try:
                await self.tidy()
            except (ApiError, Unreachable, NodeError) as error:
                log.warning("claims not tidied", error=f"{type(error).__name__}: {error}")

    async def tidy(self) -> None:
        kept = frozenset(await self._folders.claims())
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
            await self._folders.remove_claim(uid)
            log.info("claim removed", uid=uid)

    async def _listed(self, kept: Collection[str]) -> dict[str, Key]:
        """Of all claims that there are, those that have a folder here."""
        try:
            return await self._pages(kept, PAGE)
        except Gone:  # the snapshot was forgotten between two pages: take it whole
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
