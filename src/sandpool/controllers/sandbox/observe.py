"""Reads a view off the caches: a fixed number of lookups by name and by index, never a list."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
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
"""An object from a consistent read, used where the cache lacks it."""

Shown = dict[tuple[str, Key], Any]
"""The same, by kind and name."""

_NOTHING: Shown = {}
_NOBODY: frozenset[Uid] = frozenset()


@dataclass(frozen=True, slots=True)
class Caches:
    """The caches that the sandbox controller reads."""

    sandboxes: Cache[Sandbox]
    pods: Cache[Pod]
    services: Cache[Service]
    volume_claims: Cache[PersistentVolumeClaim]
    pools: Cache[SandboxWarmPool]
    claims: Cache[SandboxClaim]


class Observer:
    """Builds the view of a sandbox from the caches."""

    def __init__(self, caches: Caches) -> None:
        self.caches = caches
        self.by_owner = caches.sandboxes.index(controller_of)
        self.by_pointer = caches.sandboxes.index(_pointed_at)
        self.by_volume_claim = caches.sandboxes.index(claim_keys)
        self._pods_of = caches.pods.index(controller_of)

    def view(self, key: Key, found: Sequence[Found] = ()) -> SandboxView | None:
        caches = self.caches
        sandbox = caches.sandboxes.get(key)
        if sandbox is None:
            return None
        shown = {(resource.plural, obj.metadata.key): obj for resource, obj in found} if found else _NOTHING
        pointed, wanted = pointer(sandbox), sandbox.spec.volume_claim_templates
        named, service = _look(caches.pods, key, shown), _look(caches.services, key, shown)
        owned = self._owned(sandbox, named if found else None)
        return SandboxView(
            sandbox=sandbox,
            owned=owned,
            tracked=_look(caches.pods, pod_key(sandbox), shown) if pointed else None,
            named=named,
            service=service,
            claims=tuple([_look(caches.volume_claims, claim, shown) for claim in claim_keys(sandbox)])
            if wanted
            else (),
            owner_alive=self.owner_alive(sandbox),
            leaving=self._leaving(owned, service) if owned or service is not None else _NOBODY,
        )

    def pods_of(self, sandbox: Uid) -> Sequence[Pod]:
        """The pods that it controls, or controlled, as the cache shows them."""
        return by_name(self._pods_of.get(sandbox))

    def _owned(self, sandbox: Sandbox, shown: Pod | None) -> tuple[Pod, ...]:
        """The pods that the sandbox controls. The index has those of the cache; `shown` may be one that the cache lacks."""
        pods = self._pods_of.get(sandbox.metadata.uid)
        if shown is None or not _controls(sandbox.metadata.uid, shown):
            return tuple(pods) if len(pods) < 2 else by_name(pods)
        owned = {pod.metadata.key: pod for pod in pods}
        owned[shown.metadata.key] = shown
        return by_name(owned.values())

    def owner_alive(self, sandbox: Sandbox) -> bool:
        """The pool or claim that the sandbox names as its owner exists, with that very uid."""
        owner = extension_owner(sandbox)
        if owner is None:
            return False
        key = Key(sandbox.metadata.namespace, owner.name)
        holder: Object | None = None
        if owner.kind == SandboxWarmPool.kind:
            holder = self.caches.pools.get(key)
        elif owner.kind == SandboxClaim.kind:
            holder = self.caches.claims.get(key)
        return holder is not None and holder.metadata.uid == owner.uid

    def _leaving(self, pods: Iterable[Pod], service: Service | None) -> frozenset[Uid]:
        """The uids of objects that are being deleted, or whose delete was sent."""
        leaving = _NOBODY
        for pod in pods:
            if self.caches.pods.leaving(pod):
                leaving |= {pod.metadata.uid}
        if service is not None and self.caches.services.leaving(service):
            leaving |= {service.metadata.uid}
        return leaving


def _controls(uid: Uid, pod: Pod) -> bool:
    owner = pod.metadata.controller
    return owner is not None and owner.uid == uid


def _pointed_at(sandbox: Sandbox) -> tuple[Key, ...]:
    name = pointer(sandbox)
    return (Key(sandbox.metadata.namespace, name),) if name else ()


def _look(cache: Cache[T], key: Key, shown: Shown) -> T | None:
    found = cache.get(key)
    return found if found is not None or not shown else shown.get((cache.resource.plural, key))
