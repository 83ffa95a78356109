"""An Api around another one, for those who want to see its calls: every call about one object passes one place.

Lists and watches pass through unseen: a cache counts its own.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import Any, TypeVar

from sandpool.kube.api import Api, Event, Page, Preconditions, Propagation
from sandpool.model.metadata import Object, Revision
from sandpool.model.patches import Patch
from sandpool.model.resource import Resource

T = TypeVar("T", bound=Object)
R = TypeVar("R")


class Around:
    """`_seen` makes each call, or does not."""

    def __init__(self, api: Api) -> None:
        self._api = api

    async def _seen(
        self,
        verb: str,
        resource: Resource[Any],
        what: str | Object | Mapping[str, Any],
        namespace: str,
        call: Callable[[], Awaitable[R]],
    ) -> R:
        """`what` is a name; of a creation the body, which may have none yet."""
        return await call()

    def get(self, resource: Resource[T], name: str, namespace: str = "") -> Coroutine[Any, Any, T]:
        return self._seen("get", resource, name, namespace, partial(self._api.get, resource, name, namespace))

    def create(self, resource: Resource[T], body: T | Mapping[str, Any], namespace: str = "") -> Coroutine[Any, Any, T]:
        return self._seen("create", resource, body, namespace, partial(self._api.create, resource, body, namespace))

    def patch(self, resource: Resource[T], name: str, patch: Patch, namespace: str = "") -> Coroutine[Any, Any, T]:
        call = partial(self._api.patch, resource, name, patch, namespace)
        return self._seen("patch", resource, name, namespace, call)

    def patch_status(
        self, resource: Resource[T], name: str, patch: Patch, namespace: str = ""
    ) -> Coroutine[Any, Any, T]:
        call = partial(self._api.patch_status, resource, name, patch, namespace)
        return self._seen("patch_status", resource, name, namespace, call)

    def delete(
        self,
        resource: Resource[T],
        name: str,
        namespace: str = "",
        *,
        preconditions: Preconditions | None = None,
        propagation: Propagation | None = None,
        grace: int | None = None,
    ) -> Coroutine[Any, Any, T | None]:
        call = partial(
            self._api.delete,
            *(resource, name, namespace),
            preconditions=preconditions,
            propagation=propagation,
            grace=grace,
        )
        return self._seen("delete", resource, name, namespace, call)

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
