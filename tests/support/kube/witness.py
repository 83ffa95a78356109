"""Somebody who sees every step on a cluster and remembers what must never happen twice."""

from __future__ import annotations

import contextlib
import random
from collections import defaultdict
from collections.abc import AsyncIterator

from sandpool.base.clock import SystemClock
from sandpool.kube.api import Api
from sandpool.loop.cache import Cache
from sandpool.loop.lifetimes import beside
from sandpool.loop.reflector import Pace, Reflector, Scope
from sandpool.model.claim import SandboxClaim
from sandpool.model.conditions import is_true
from sandpool.model.kinds import CLAIMS, SANDBOXES
from sandpool.model.metadata import Uid
from sandpool.model.reasons import Type
from sandpool.model.sandbox import Sandbox
from sandpool.telemetry.metrics import Metrics


class Witness:
    def __init__(self, api: Api, namespace: str) -> None:
        self.claims: Cache[SandboxClaim] = Cache(CLAIMS)
        self.sandboxes: Cache[Sandbox] = Cache(SANDBOXES)
        self.published: dict[Uid, set[str]] = defaultdict(set)  # the sandboxes that a claim ever named
        self.owned: dict[Uid, set[Uid]] = defaultdict(set)  # the claims that ever owned a sandbox
        self.claims.subscribe(self._claim)
        self.sandboxes.subscribe(self._sandbox)
        clock, metrics, scope, pace = SystemClock(), Metrics(), Scope(namespace), Pace(most=1.0)
        self._reflectors = [
            Reflector(api, self.claims, clock, metrics, random.random, scope, pace),
            Reflector(api, self.sandboxes, clock, metrics, random.random, scope, pace),
        ]

    def _claim(self, old: SandboxClaim | None, new: SandboxClaim | None) -> None:
        if new is not None and new.status.sandbox is not None and new.status.sandbox.name:
            self.published[new.metadata.uid].add(new.status.sandbox.name)

    def _sandbox(self, old: Sandbox | None, new: Sandbox | None) -> None:
        owner = new.metadata.controller if new is not None else None
        if new is not None and owner is not None and owner.kind == "SandboxClaim":
            self.owned[new.metadata.uid].add(owner.uid)

    def content(self) -> None:
        """Nothing was ever handed out twice."""
        twice = [uid for uid, names in self.published.items() if len(names) > 1]
        assert not twice, f"claims that named several sandboxes: {[self.published[uid] for uid in twice]}"
        shared = [uid for uid, owners in self.owned.items() if len(owners) > 1]
        assert not shared, f"sandboxes that several claims owned: {[self.owned[uid] for uid in shared]}"

    @contextlib.asynccontextmanager
    async def watching(self) -> AsyncIterator[None]:
        claims, sandboxes = self._reflectors
        async with beside(claims=claims.run(), sandboxes=sandboxes.run()):  # type: ignore[attr-defined]
            await self.claims.synced.wait()
            await self.sandboxes.synced.wait()
            yield


class Members:
    """Sees how many members of a pool there ever were at once, and how few of them could be handed out."""

    def __init__(self, api: Api, namespace: str, pool: Uid) -> None:
        self._pool = pool
        self._sandboxes: Cache[Sandbox] = Cache(SANDBOXES)
        self._reflector = Reflector(
            api, self._sandboxes, SystemClock(), Metrics(), random.random, Scope(namespace), Pace(most=1.0)
        )
        self.fewest, self.most = 10**9, 0

    def _count(self, old: Sandbox | None, new: Sandbox | None) -> None:
        members = [one for one in self._sandboxes if self._owns(one)]
        ready = sum(is_true(one.status.conditions, Type.READY) for one in members if not one.metadata.leaving)
        self.fewest, self.most = min(self.fewest, ready), max(self.most, len(members))

    def _owns(self, sandbox: Sandbox) -> bool:
        owner = sandbox.metadata.controller
        return owner is not None and owner.uid == self._pool

    @contextlib.asynccontextmanager
    async def watching(self) -> AsyncIterator[None]:
        async with beside(sandboxes=self._reflector.run()):
            await self._sandboxes.synced.wait()
            self._sandboxes.subscribe(self._count)
            self.fewest, self.most = 10**9, 0  # what it was told on the way to knowing all does not count
            self._count(None, None)
            yield
