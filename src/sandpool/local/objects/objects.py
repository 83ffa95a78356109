"""The service that every request ends in: one method per verb, over raw JSON and records."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any, Protocol

from sandpool.kube.api import EventType
from sandpool.local.objects.options import Deleted, DeleteOptions, Listed, ListQuery, WatchQuery, WriteOptions, Written
from sandpool.local.store.port import Store
from sandpool.local.store.record import Record
from sandpool.model.metadata import Revision
from sandpool.model.patches import Patch
from sandpool.model.resource import Resource

AnyResource = Resource[Any]


class RawEvent(Protocol):
    """One event for one watcher: what happened, and the object's stored bytes (shared by all watchers)."""

    type: EventType
    value: bytes  # for a bookmark: a minimal object that carries resourceVersion (and the initial-events-end mark)
    revision: Revision


class RawWatch(Protocol):
    async def next(self) -> list[RawEvent]:
        """The next events that match, at least one, joined as they came; raises Gone when this watcher fell behind."""
        ...

    def close(self) -> None: ...


class Objects:
    """Verbs over objects of any kind. Subresources: "" is the object, "status", and "scale" where the kind has one."""

    def __init__(self, store: Store, now: Callable[[], datetime], new_uid: Callable[[], str]) -> None:
        raise NotImplementedError

    def get(self, resource: AnyResource, namespace: str, name: str) -> Record:
        raise NotImplementedError

    def list(self, resource: AnyResource, namespace: str, query: ListQuery) -> Listed:
        raise NotImplementedError

    def watch(self, resource: AnyResource, namespace: str, query: WatchQuery) -> RawWatch:
        raise NotImplementedError

    async def create(
        self, resource: AnyResource, namespace: str, body: dict[str, Any], options: WriteOptions = WriteOptions()
    ) -> Written:
        raise NotImplementedError

    async def update(
        self,
        resource: AnyResource,
        namespace: str,
        name: str,
        body: dict[str, Any],
        options: WriteOptions = WriteOptions(),
        subresource: str = "",
    ) -> Written:
        raise NotImplementedError

    async def patch(
        self,
        resource: AnyResource,
        namespace: str,
        name: str,
        patch: Patch,
        options: WriteOptions = WriteOptions(),
        subresource: str = "",
    ) -> Written:
        raise NotImplementedError

    async def delete(
        self, resource: AnyResource, namespace: str, name: str, options: DeleteOptions = DeleteOptions()
    ) -> Deleted:
        raise NotImplementedError

    async def delete_collection(
        self, resource: AnyResource, namespace: str, query: ListQuery, options: DeleteOptions = DeleteOptions()
    ) -> Listed:
        raise NotImplementedError
