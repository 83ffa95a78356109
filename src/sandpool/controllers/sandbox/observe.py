"""Reads a view off the caches: a fixed number of lookups by name and by index, never a list."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, TypeVar

from sandpool.controllers.sandbox.view import SandboxView, by_name, claim_keys, extension_owner, pod_key, pointer
from sandpool.loop.cache import Cache
from sandpool.loop.index import controller_of
from sandpool.model.claim import SandboxClaim
from sandpool.model.core import PersistentVolumeClaim, Service
from sandpool.model.metadata import Key, Object, Uid
from sandpool.model.pod import Pod
from sandpool.model.pool import SandboxWarmPool
from sandpool.model.resource import Resource
from sandpool.model.sandbox import Sandbox

T = TypeVar("T", bound=Object)

Found = tuple[Resource[Any], Object]
"""An object that a consistent read has shown: it counts where a cache lacks it."""


@dataclass(frozen=True, slots=True)
class Caches:
    sandboxes: Cache[Sandbox]
    pods: Cache[Pod]
    services: Cache[Service]
    volume_claims: Cache[PersistentVolumeClaim]
    pools: Cache[SandboxWarmPool]
    claims: Cache[SandboxClaim]


class Observer:
    def __init__(self, caches: Caches) -> None:
        self.caches = caches
        self.by_owner = caches.sandboxes.index(controller_of)
        self.by_pointer = caches.sandboxes.index(lambda sandbox: (pod_key(sandbox),) if pointer(sandbox) else ())
        self.by_volume_claim = caches.sandboxes.index(claim_keys)
        self._pods_of = caches.pods.index(controller_of)

    def view(self, key: Key, found: Iterable[Found] = ()) -> SandboxView | None:
        caches = self.caches
        sandbox = caches.sandboxes.get(key)
        if sandbox is None:
            return None
        extra: dict[tuple[str, Key], Any] = {(resource.plural, obj.metadata.key): obj for resource, obj in found}
        owned = {pod.metadata.key: pod for pod in self._pods_of.get(sandbox.metadata.uid)}
        named = _look(caches.pods, key, extra)
        if named is not None and _controls(sandbox.metadata.uid, named):
            owned[key] = named
        tracked = _look(caches.pods, pod_key(sandbox), extra) if pointer(sandbox) else None
        service = _look(caches.services, key, extra)
        claims = tuple(_look(caches.volume_claims, claim, extra) for claim in claim_keys(sandbox))
        return SandboxView(
            sandbox=sandbox,
            owned=by_name(owned.values()),
            tracked=tracked,
            named=named,
            service=service,
            claims=claims,
            owner_alive=self._owner_alive(sandbox),
            leaving=self._leaving(owned.values(), service),
        )

    def _owner_alive(self, sandbox: Sandbox) -> bool:
        owner = extension_owner(sandbox)
        if owner is None:
            return False
        key = Key(sandbox.metadata.namespace, owner.name)
        holders: dict[str, Object | None] = {
            SandboxWarmPool.kind: self.caches.pools.get(key),
            SandboxClaim.kind: self.caches.claims.get(key),
        }
        holder = holders.get(owner.kind)
        return holder is not None and holder.metadata.uid == owner.uid

    def _leaving(self, pods: Iterable[Pod], service: Service | None) -> frozenset[Uid]:
        """What we asked to leave counts before the server has marked it."""
        leaving = [pod.metadata.uid for pod in pods if self.caches.pods.leaving(pod)]
        if service is not None and self.caches.services.leaving(service):
            leaving.append(service.metadata.uid)
        return frozenset(leaving)


def _controls(uid: Uid, pod: Pod) -> bool:
    owner = pod.metadata.controller
    return owner is not None and owner.uid == uid


def _look(cache: Cache[T], key: Key, extra: dict[tuple[str, Key], Any]) -> T | None:
    found = cache.get(key)
    return found if found is not None else extra.get((cache.resource.plural, key))
