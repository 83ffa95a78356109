"""Read your own writes: the Api through which controllers write.

Every answer enters its cache at once, so the next look at the cache, by whichever controller, already shows it. A delete
marks the object as leaving while it is under way. A later watch event of the same change is dropped by its revision.
Lists and watches pass through. The answer to a consistent `get` enters the cache like that to a write.
A 404 removes the object from the cache if it was there before the call and the answer names it: other 404s are about something else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from sandpool.kube.api import Api, Call, Verb
from sandpool.kube.errors import ApiError, NotFound
from sandpool.kube.interceptors import Interceptor
from sandpool.loop.cache import Cache
from sandpool.loop.outcome import refuses
from sandpool.model.metadata import Key, Object, Uid
from sandpool.model.resource import Resource

T = TypeVar("T", bound=Object)
AnyCache = Cache[Any]


class Writes(Interceptor):
    """An interceptor that brings every answer into the caches of its resource."""

    def __init__(self, api: Api, caches: Iterable[AnyCache]) -> None:
        super().__init__(api)
        self.refused: Callable[[Resource[Any], Key, ApiError], object] | None = None
        """Called when the server refuses a status."""
        self._caches: dict[Resource[Any], list[AnyCache]] = {}
        for cache in caches:
            self._caches.setdefault(cache.resource, []).append(cache)

    async def send(self, call: Call) -> Any:
        verb = call.verb
        if verb is Verb.LIST:
            return await self.inner.send(call)
        if verb is Verb.DELETE:
            return await self._delete(call)
        resource, key = call.resource, Key(call.namespace, call.name)
        caches = self._caches.get(resource, ())
        known = [(cache, obj.metadata.uid) for cache in caches if (obj := cache.get(key))] if call.name else ()
        try:
            answer = await self.inner.send(call)
        except NotFound as error:
            if _names(error, key.name):
                for cache, uid in known:
                    cache.missing(key, uid)
            raise
        except ApiError as error:
            if verb is Verb.PATCH_STATUS and self.refused is not None and refuses(error):
                self.refused(resource, key, error)
            raise
        for cache in caches:
            cache.upsert(answer)
        return answer if verb is not Verb.GET else self._newest(answer, resource)

    async def _delete(self, call: Call) -> Any:
        resource, key = call.resource, Key(call.namespace, call.name)
        preconditions = call.delete_options.preconditions
        marked = self._mark_deleting(resource, key, preconditions.uid if preconditions is not None else None)
        try:
            left = await self.inner.send(call)
        except BaseException as error:  # also when cancelled: the watch will show whether it took effect
            gone = isinstance(error, NotFound) and _names(error, key.name)
            for cache, its_uid in marked:
                if gone:
                    cache.gone(key, its_uid)
                else:
                    cache.unmark_deleting(its_uid)
            raise
        _settle(key, marked, left)
        if left is not None:
            for cache in self._caches_of(resource):
                cache.upsert(left)
        return left

    def _caches_of(self, resource: Resource[T]) -> Sequence[Cache[T]]:
        return self._caches.get(resource, ())

    def _newest(self, found: T, resource: Resource[T]) -> T:
        """The newest of the answer and the cached states: the answer may have been delayed."""
        for cache in self._caches_of(resource):
            known = cache.get(found.metadata.key)
            if known is not None and known.metadata.revision > found.metadata.revision:
                found = known
        return found

    def _mark_deleting(self, resource: Resource[T], key: Key, uid: Uid | None) -> Sequence[tuple[Cache[T], Uid]]:
        """Marks the object in every cache that has it. Without a uid, the object that has the name now."""
        marked = []
        for cache in self._caches_of(resource):
            obj = cache.get(key)
            its_uid = uid or (obj.metadata.uid if obj is not None else None)
            if its_uid is not None and cache.mark_deleting(key, its_uid):
                marked.append((cache, its_uid))
        return marked


def _names(error: NotFound, name: str) -> bool:
    """Whether the 404 is about the object. A server that does not serve the resource at the moment answers 404 as well."""
    return error.details.get("name") == name


def _settle(key: Key, marked: Sequence[tuple[Cache[T], Uid]], left: T | None) -> None:
    """A delete was answered: nothing is left, or an object that waits for its finalizers or its grace period."""
    for cache, uid in marked:
        if left is None:
            cache.gone(key, uid)
        else:
            cache.unmark_deleting(uid)
