"""Objects over a memory store, with a clock and uids that a test can foresee."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any

import msgspec

from sandpool.controlplane.objects.collection import delete_each
from sandpool.controlplane.objects.objects import Objects
from sandpool.controlplane.objects.options import Deleted, DeleteOptions, ListQuery, WriteOptions
from sandpool.controlplane.store.history import HistoryLimits
from sandpool.controlplane.store.log import MemoryLog
from sandpool.controlplane.store.record import Record
from sandpool.controlplane.store.store import Store
from sandpool.kube.errors import NotFound
from sandpool.model import kinds
from sandpool.model.patches import Patch, json_patch, merge_patch
from sandpool.model.resource import Resource

START = datetime(2026, 1, 1, tzinfo=UTC)
Body = dict[str, Any]


def claim(name: str = "x", **metadata: Any) -> Body:
    return {"metadata": {"name": name, **metadata}, "spec": {"warmPoolRef": {"name": "pool"}}}


def sandbox(name: str = "x", **metadata: Any) -> Body:
    template = {"spec": {"containers": [{"name": "main", "image": "python"}]}}
    return {"metadata": {"name": name, **metadata}, "spec": {"podTemplate": template}}


def pod(name: str = "p", node: str = "", **metadata: Any) -> Body:
    spec: Body = {"containers": [{"name": "main", "image": "python"}]}
    if node:
        spec["nodeName"] = node
    return {"metadata": {"name": name, **metadata}, "spec": spec}


def config_map(name: str = "c", **metadata: Any) -> Body:
    return {"metadata": {"name": name, **metadata}, "data": {"a": "b"}}


@dataclass
class Bench:
    """The objects under test, and short forms of what tests do all the time. All in namespace `default`."""

    store: Store
    objects: Objects
    now: datetime = START
    names: list[str] = field(default_factory=list)  # suffixes that generated names will get, in order

    def advance(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)

    async def create(self, resource: Resource[Any], body: Body, namespace: str = "default", **options: Any) -> Body:
        scope = namespace if resource.namespaced else ""
        return read((await self.objects.create(resource, scope, body, WriteOptions(**options))).record)

    def get(self, resource: Resource[Any], name: str, namespace: str = "default") -> Body:
        return read(self.objects.get(resource, namespace if resource.namespaced else "", name))

    def absent(self, resource: Resource[Any], name: str, namespace: str = "default") -> bool:
        try:
            self.get(resource, name, namespace)
        except NotFound:
            return True
        return False

    async def put(
        self, resource: Resource[Any], name: str, body: Body, subresource: str = "", namespace: str = "default"
    ) -> Body:
        scope = namespace if resource.namespaced else ""
        return read((await self.objects.update(resource, scope, name, body, subresource=subresource)).record)

    async def patch(
        self,
        resource: Resource[Any],
        name: str,
        patch: Patch | Body | list[Body],
        subresource: str = "",
        namespace: str = "default",
        **options: Any,
    ) -> Body:
        made = (
            merge_patch(patch) if isinstance(patch, dict) else json_patch(patch) if isinstance(patch, list) else patch
        )
        scope = namespace if resource.namespaced else ""
        written = await self.objects.patch(resource, scope, name, made, WriteOptions(**options), subresource)
        return read(written.record)

    async def delete(self, resource: Resource[Any], name: str, namespace: str = "default", **options: Any) -> Deleted:
        scope = namespace if resource.namespaced else ""
        return await self.objects.delete(resource, scope, name, DeleteOptions(**options))

    async def delete_listed(
        self, resource: Resource[Any], query: ListQuery, options: DeleteOptions = DeleteOptions()
    ) -> None:
        async def turn(size: int) -> None:
            assert size > 0

        listed = self.objects.list(resource, "default", query)
        await delete_each(self.objects, resource, listed.records, options, turn)

    def names_of(self, resource: Resource[Any], namespace: str = "default", **query: Any) -> list[str]:
        listed = self.objects.list(resource, namespace, ListQuery(**query))
        return [read(record)["metadata"]["name"] for record in listed.records]


def read(record: Record) -> Body:
    document: Body = msgspec.json.decode(record.value)
    return document


@asynccontextmanager
async def bench(history_limits: HistoryLimits = HistoryLimits()) -> AsyncIterator[Bench]:
    store = await Store.open(MemoryLog(), history_limits=history_limits)
    uids = count(1)
    made: Bench
    objects = Objects(
        store,
        lambda: made.now,
        lambda: f"00000000-0000-4000-8000-{next(uids):012d}",
        lambda: made.names.pop(0),
    )
    made = Bench(store, objects)
    await made.create(kinds.NAMESPACES, {"metadata": {"name": "default"}})
    try:
        yield made
    finally:
        await store.close()
