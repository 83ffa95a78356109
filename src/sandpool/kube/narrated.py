"""An Api whose calls are part of the story and of the trace of the reconcile that makes them: what was written, what came of it.

Lists and watches pass through unseen. Nothing is kept here: outside a reconcile, and without a tracer, a call only passes.
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
from sandpool.telemetry.story import ASKED, TRIED, WROTE, note
from sandpool.telemetry.trace import NullTracer, Tracer

T = TypeVar("T", bound=Object)
R = TypeVar("R")


class Narrated:
    def __init__(self, api: Api, tracer: Tracer = NullTracer()) -> None:
        self._api = api
        self._tracer = None if isinstance(tracer, NullTracer) else tracer

    def get(self, resource: Resource[T], name: str, namespace: str = "") -> Coroutine[Any, Any, T]:
        call = partial(self._api.get, resource, name, namespace)
        return self._told(ASKED, "get", resource, name, namespace, call)

    def create(self, resource: Resource[T], body: T | Mapping[str, Any], namespace: str = "") -> Coroutine[Any, Any, T]:
        call = partial(self._api.create, resource, body, namespace)
        return self._told(WROTE, "create", resource, _name(body), namespace, call)

    def patch(self, resource: Resource[T], name: str, patch: Patch, namespace: str = "") -> Coroutine[Any, Any, T]:
        call = partial(self._api.patch, resource, name, patch, namespace)
        return self._told(WROTE, "patch", resource, name, namespace, call)

    def patch_status(
        self, resource: Resource[T], name: str, patch: Patch, namespace: str = ""
    ) -> Coroutine[Any, Any, T]:
        call = partial(self._api.patch_status, resource, name, patch, namespace)
        return self._told(WROTE, "patch status of", resource, name, namespace, call)

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
        return self._told(WROTE, "delete", resource, name, namespace, call)

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

    async def _told(
        self, word: str, verb: str, resource: Resource[Any], name: str, namespace: str, call: Callable[[], Awaitable[R]]
    ) -> R:
        try:
            if self._tracer is None:
                answer = await call()
            else:
                with self._tracer.span(f"{verb} {resource.plural}", namespace=namespace, object=name):
                    answer = await call()
        except BaseException as error:  # also when cancelled: that it was tried is what one will want to know
            note(f"{TRIED} {verb} {resource.plural}/{name}: {type(error).__name__}")
            raise
        note(f"{word} {verb} {resource.plural}/{name}")
        return answer


def _name(body: Object | Mapping[str, Any]) -> str:
    if isinstance(body, Mapping):
        metadata = body.get("metadata") or {}
        return str(metadata.get("name") or metadata.get("generateName", ""))
    return body.metadata.name or body.metadata.generate_name
