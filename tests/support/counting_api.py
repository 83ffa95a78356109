"""An Api that counts: every call with its verb, its resource and what came of it. A wrapper of the port."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from sandpool.base.errors import SandpoolError
from sandpool.kube.api import Api, Event, Page, Preconditions, Propagation
from sandpool.model.metadata import Object, Revision
from sandpool.model.patches import Patch
from sandpool.model.resource import Resource

T = TypeVar("T", bound=Object)
R = TypeVar("R")

WRITES = frozenset({"create", "patch", "patch_status", "delete"})


@dataclass(frozen=True, slots=True)
class Made:
    """One call. `outcome` is "ok" or the name of the error; a call that was cancelled says so."""

    verb: str
    resource: str  # the plural
    outcome: str
    name: str = ""
    namespace: str = ""
    patch: Patch | None = None


class CountingApi:
    def __init__(self, inner: Api) -> None:
        self.inner = inner
        self.calls: list[Made] = []

    def count(self, verb: str = "", resource: str = "", outcome: str = "") -> int:
        """How many calls fit; an empty word fits all."""
        return sum(
            verb in ("", made.verb) and resource in ("", made.resource) and outcome in ("", made.outcome)
            for made in self.calls
        )

    @property
    def writes(self) -> int:
        return sum(made.verb in WRITES for made in self.calls)

    @property
    def totals(self) -> Counter[tuple[str, str, str]]:
        return Counter((made.verb, made.resource, made.outcome) for made in self.calls)

    def clear(self) -> None:
        self.calls.clear()

    async def get(self, resource: Resource[T], name: str, namespace: str = "") -> T:
        return await self._made("get", resource, self.inner.get(resource, name, namespace), name, namespace)

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
        asked = self.inner.list(resource, namespace, labels=labels, fields=fields, limit=limit, after=after)
        return await self._made("list", resource, asked, "", namespace)

    @asynccontextmanager
    async def watch(
        self,
        resource: Resource[T],
        namespace: str = "",
        *,
        labels: str = "",
        fields: str = "",
        since: Revision | None = None,
        initial: bool = False,
        timeout: float | None = None,
    ) -> AsyncIterator[AsyncIterator[Event[T]]]:
        """A watch is counted when it has begun, or failed to."""
        watch = self.inner.watch(
            resource, namespace, labels=labels, fields=fields, since=since, initial=initial, timeout=timeout
        )
        events = await self._made("watch", resource, watch.__aenter__(), "", namespace)
        try:
            yield events
        finally:
            await watch.__aexit__(None, None, None)

    async def create(self, resource: Resource[T], body: T | Mapping[str, Any], namespace: str = "") -> T:
        metadata: Any = (body.get("metadata") or {}) if isinstance(body, Mapping) else body.metadata
        name = metadata.get("name", "") if isinstance(metadata, Mapping) else metadata.name
        return await self._made("create", resource, self.inner.create(resource, body, namespace), name, namespace)

    async def patch(self, resource: Resource[T], name: str, patch: Patch, namespace: str = "") -> T:
        asked = self.inner.patch(resource, name, patch, namespace)
        return await self._made("patch", resource, asked, name, namespace, patch)

    async def patch_status(self, resource: Resource[T], name: str, patch: Patch, namespace: str = "") -> T:
        asked = self.inner.patch_status(resource, name, patch, namespace)
        return await self._made("patch_status", resource, asked, name, namespace, patch)

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
        asked = self.inner.delete(
            resource, name, namespace, preconditions=preconditions, propagation=propagation, grace=grace
        )
        return await self._made("delete", resource, asked, name, namespace)

    async def _made(
        self,
        verb: str,
        resource: Resource[Any],
        asked: Awaitable[R],
        name: str,
        namespace: str,
        patch: Patch | None = None,
    ) -> R:
        outcome = "cancelled"
        try:
            result = await asked
            outcome = "ok"
            return result
        except SandpoolError as error:
            outcome = type(error).__name__
            raise
        finally:
            self.calls.append(Made(verb, resource.plural, outcome, name, namespace, patch))
