"""The port that everything above sees: eight verbs over typed objects.

On a cluster it is HTTP to the API server (kube/http.py); on one machine it is a log in this process (controlplane/api.py).
Nothing above knows which. One conformance suite (tests/conformance) runs on each implementation.

Every method raises the errors of kube/errors.py and nothing else. Returned objects are immutable.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Generic, Protocol, TypeVar, runtime_checkable

import msgspec

from sandpool.model.metadata import Object, Revision, Uid
from sandpool.model.patches import Patch
from sandpool.model.resource import Resource

T = TypeVar("T", bound=Object)


class EventType(StrEnum):
    ADDED = "ADDED"
    MODIFIED = "MODIFIED"
    DELETED = "DELETED"
    BOOKMARK = "BOOKMARK"


class Event(msgspec.Struct, Generic[T], frozen=True, gc=False):
    """One step of a watch. A bookmark has no object, only the revision that the watcher has reached."""

    type: EventType
    object: T | None
    revision: Revision
    initial_done: bool = False  # on the bookmark that ends the initial events of a streaming list


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """A part of a list. `revision` is that of the whole snapshot; a watch from it misses nothing."""

    items: tuple[T, ...]
    revision: Revision
    after: str = ""  # token of the next page; empty on the last one
    remaining: int | None = None


@dataclass(frozen=True, slots=True)
class Preconditions:
    """What must still be true of the object for a delete to happen; otherwise Conflict."""

    uid: Uid | None = None
    revision: Revision | None = None


class Propagation(StrEnum):
    BACKGROUND = "Background"
    FOREGROUND = "Foreground"
    ORPHAN = "Orphan"


@runtime_checkable
class Batched(Protocol[T]):
    """What a watch may be besides an iterator of events: one whose reader takes all that has come at once."""

    async def batch(self) -> Sequence[Event[T]]:
        """At least one event; none at the end."""
        ...


class Api(Protocol):
    async def get(self, resource: Resource[T], name: str, namespace: str = "") -> T:
        """A consistent read: never older than any write acknowledged before the call."""
        ...

    async def list(
        self,
        resource: Resource[T],
        namespace: str = "",  # all of them
        *,
        labels: str = "",
        fields: str = "",
        limit: int = 0,  # no pages
        after: str = "",
    ) -> Page[T]:
        """A consistent snapshot, in pages if `limit` is given. Gone: the snapshot of `after` is compacted, start over."""
        ...

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
        """Every change after `since`, in order, with bookmarks. With `initial`, the present state first, as ADDED events
        that end in a bookmark with `initial_done`; with neither, it comes first too, but nothing marks its end. The watch
        ends normally at `timeout` or when the server ends it; it raises Gone when `since` is compacted or this watcher
        fell too far behind."""
        ...

    async def create(self, resource: Resource[T], body: T | Mapping[str, Any], namespace: str = "") -> T: ...

    async def patch(self, resource: Resource[T], name: str, patch: Patch, namespace: str = "") -> T: ...

    async def patch_status(self, resource: Resource[T], name: str, patch: Patch, namespace: str = "") -> T: ...

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
        """None: it is gone. An object: it is marked, and leaves when its finalizers (or its grace period) allow."""
        ...
