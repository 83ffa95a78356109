"""Read your own writes: the Api through which controllers write.

Every answer enters its cache at once, so the next look at the cache, by whichever controller, already shows it. A delete
marks the object as leaving while it is under way. What the watch says of the same change later is dropped by revision.
`Writes` is itself an Api. Reads pass through; the answer to a consistent `get` is as good as that to a write, and is learned.
So is that an object is no more, if it was there when we asked and the answer names it: other 404s speak of something else.
With a `gate` writes pass it in the lane of their context: for an Api that has no gate of its own, as one in this process.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import Any, TypeVar

from sandpool.kube.api import Api, Event, Page, Preconditions, Propagation
from sandpool.kube.errors import ApiError, NotFound
from sandpool.kube.lanes import LaneGate, present_lane
from sandpool.loop.cache import Cache
from sandpool.loop.outcome import refuses
from sandpool.model.metadata import Key, Object, Revision, Uid
from sandpool.model.patches import Patch
from sandpool.model.resource import Resource

T = TypeVar("T", bound=Object)
R = TypeVar("R")
AnyCache = Cache[Any]


class Writes:
    def __init__(self, api: Api, caches: Iterable[AnyCache], gate: LaneGate | None = None) -> None:
        self.refused: Callable[[Resource[Any], Key, ApiError], object] | None = (
            None  # hears of a status that may not be written
        )
        self._api = api
        self._gate = gate
        self._caches: dict[Resource[Any], list[AnyCache]] = {}
        for cache in caches:
            self._caches.setdefault(cache.resource, []).append(cache)

    async def get(self, resource: Resource[T], name: str, namespace: str = "") -> T:
        call = partial(self._api.get, resource, name, namespace)
        found = await self._of_one(resource, Key(namespace, name), call, None)
        return self._newest(found, resource)

    async def create(self, resource: Resource[T], body: T | Mapping[str, Any], namespace: str = "") -> T:
        made = await self._passed(partial(self._api.create, resource, body, namespace))
        for cache in self._caches_of(resource):
            cache.learn(made)
        return made

    def patch(self, resource: Resource[T], name: str, patch: Patch, namespace: str = "") -> Coroutine[Any, Any, T]:
        call = partial(self._api.patch, resource, name, patch, namespace)
        return self._of_one(resource, Key(namespace, name), call, self._gate)

    def patch_status(
        self, resource: Resource[T], name: str, patch: Patch, namespace: str = ""
    ) -> Coroutine[Any, Any, T]:
        call = partial(self._api.patch_status, resource, name, patch, namespace)
        return self._of_one(resource, Key(namespace, name), call, self._gate, status=True)

    async def delete(
        self,
        resource: Resource[T],
        name: str,
        namespace: str = "",
        *,
        preconditions: Preconditions | None = None,
        propagation: Propagation | None = None,
        grace: int | None = None,
    ) -> T | None:
        key = Key(namespace, name)
        uid = preconditions.uid if preconditions is not None else None
        doomed = self._doom(resource, key, uid)
        try:
            call = partial(
                self._api.delete,
                *(resource, name, namespace),
                preconditions=preconditions,
                propagation=propagation,
                grace=grace,
            )
            left = await self._passed(call)
        except BaseException as error:  # also when cancelled: whether it happened or not, the watch will tell
            gone = isinstance(error, NotFound) and _names(error, name)
            for cache, its_uid in doomed:
                if gone:
                    cache.gone(key, its_uid)
                else:
                    cache.spare(its_uid)
            raise
        _settle(key, doomed, left)
        if left is not None:
            for cache in self._caches_of(resource):
                cache.learn(left)
        return left

    async def list(
        self,
        resource: Resource[T],
        namespace: str = "",
        *,
        labels: str = "",
        fields: str = "",
        limit: int = 0,
        after: str = "",
    ) -> Page[T]:
        return await self._api.list(resource, namespace, labels=labels, fields=fields, limit=limit, after=after)

    def watch(
        self,
        resource: Resource[T],
        namespace: str = "",
        *,
        labels: str = "",
        fields: str = "",
        since: Revision | None = None,
        initial: bool = False,
        timeout: float | None = None,
    ) -> AbstractAsyncContextManager[AsyncIterator[Event[T]]]:
        return self._api.watch(
            resource, namespace, labels=labels, fields=fields, since=since, initial=initial, timeout=timeout
        )

    async def _of_one(
        self,
        resource: Resource[T],
        key: Key,
        call: Callable[[], Awaitable[T]],
        gate: LaneGate | None,
        *,
        status: bool = False,
    ) -> T:
        """An answer about one object, whatever it says."""
        caches = self._caches_of(resource)
        known = [(cache, obj.metadata.uid) for cache in caches if (obj := cache.get(key))]
        try:
            answer = await (call() if gate is None else self._passed(call))
        except NotFound as error:
            if _names(error, key.name):
                for cache, uid in known:
                    cache.missing(key, uid)
            raise
        except ApiError as error:
            if status and self.refused is not None and refuses(error):
                self.refused(resource, key, error)
            raise
        for cache in caches:
            cache.learn(answer)
        return answer

    async def _passed(self, write: Callable[[], Awaitable[R]]) -> R:
        """Makes the write when it is its turn."""
        gate = self._gate
        if gate is None:
            return await write()
        lane = present_lane()
        if not gate.enter_now(lane):
            await gate.enter(lane, write=True)
        try:
            return await write()
        finally:
            gate.leave(lane)

    def _caches_of(self, resource: Resource[T]) -> Sequence[Cache[T]]:
        return self._caches.get(resource, ())

    def _newest(self, found: T, resource: Resource[T]) -> T:
        """An answer that was long on its way may be older than what is known by now."""
        for cache in self._caches_of(resource):
            known = cache.get(found.metadata.key)
            if known is not None and known.metadata.revision > found.metadata.revision:
                found = known
        return found

    def _doom(self, resource: Resource[T], key: Key, uid: Uid | None) -> Sequence[tuple[Cache[T], Uid]]:
        """Marks the object wherever it is cached. Without a uid the one that has the name now is meant."""
        doomed = []
        for cache in self._caches_of(resource):
            obj = cache.get(key)
            its_uid = uid or (obj.metadata.uid if obj is not None else None)
            if its_uid is not None and cache.doom(key, its_uid):
                doomed.append((cache, its_uid))
        return doomed


def _names(error: NotFound, name: str) -> bool:
    """Whether the answer is about the object. A server that does not serve the resource just now answers 404 as well."""
    return error.details.get("name") == name


def _settle(key: Key, doomed: Sequence[tuple[Cache[T], Uid]], left: T | None) -> None:
    """A delete was answered: nothing is left, or an object that waits for its finalizers or its grace period."""
    for cache, uid in doomed:
        if left is None:
            cache.gone(key, uid)
        else:
            cache.spare(uid)
