"""An Api whose calls are told to somebody who counts, as those of the HTTP adapter are: verb, resource, outcome, seconds.

For an Api without a wire. Lists and watches pass through unseen: a cache counts its own.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import Any, TypeVar

from sandpool.kube.api import Api, Event, Page, Preconditions, Propagation
from sandpool.kube.timing import Clock
from sandpool.model.metadata import Object, Revision
from sandpool.model.patches import Patch
from sandpool.model.resource import Resource

T = TypeVar("T", bound=Object)
R = TypeVar("R")


class Counted:
    def __init__(self, api: Api, clock: Clock, told: Callable[[str, str, str, float], object]) -> None:
        self._api = api
        self._clock = clock
        self._told = told

    def get(self, resource: Resource[T], name: str, namespace: str = "") -> Coroutine[Any, Any, T]:
        return self._made("get", resource, partial(self._api.get, resource, name, namespace))

    def create(self, resource: Resource[T], body: T | Mapping[str, Any], namespace: str = "") -> Coroutine[Any, Any, T]:
        return self._made("create", resource, partial(self._api.create, resource, body, namespace))

    def patch(self, resource: Resource[T], name: str, patch: Patch, namespace: str = "") -> Coroutine[Any, Any, T]:
        return self._made("patch", resource, partial(self._api.patch, resource, name, patch, namespace))

    def patch_status(
        self, resource: Resource[T], name: str, patch: Patch, namespace: str = ""
    ) -> Coroutine[Any, Any, T]:
        return self._made("patch_status", resource, partial(self._api.patch_status, resource, name, patch, namespace))

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
        return self._made("delete", resource, call)

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

    async def _made(self, verb: str, resource: Resource[Any], call: Callable[[], Awaitable[R]]) -> R:
        started, outcome = self._clock.monotonic(), "ok"
        try:
            return await call()
        except BaseException as error:
            outcome = type(error).__name__
            raise
        finally:
            self._told(verb, resource.group_resource, outcome, self._clock.monotonic() - started)
