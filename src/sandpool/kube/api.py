"""The API server as everything above it sees it: one port, `send`, and typed verbs that build its calls.

On a cluster it is HTTP to the API server (kube/http.py); on one machine it is a store in this process (controlplane/api.py).
Nothing above knows which. One conformance suite (tests/conformance) runs on each implementation.

An implementation has two methods: `send` answers a call about objects, `stream` opens a watch. So does a wrapper
(kube/interceptors.py). Callers use the verbs (`get`, `list`, `create`, ...), which `Api` has for all of them.
Every method raises the errors of kube/errors.py and nothing else. Returned objects are immutable.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Coroutine, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, Generic, Protocol, TypeVar, runtime_checkable

import msgspec

from sandpool.model.metadata import Object, Revision, Uid
from sandpool.model.patches import Patch
from sandpool.model.resource import Resource

T = TypeVar("T", bound=Object)


class EventType(StrEnum):
    """The type of a watch event."""

    ADDED = "ADDED"
    MODIFIED = "MODIFIED"
    DELETED = "DELETED"
    BOOKMARK = "BOOKMARK"


class Event(msgspec.Struct, Generic[T], frozen=True, gc=False):
    """One event of a watch. A bookmark has no object, only the revision that the watcher has reached."""

    type: EventType
    object: T | None
    revision: Revision
    initial_done: bool = False  # on the bookmark that ends the initial events of a streaming list


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """A page of a list. `revision` is that of the whole snapshot; a watch from it misses nothing."""

    items: tuple[T, ...]
    revision: Revision
    after: str = ""  # token of the next page; empty on the last one
    remaining: int | None = None


@dataclass(frozen=True, slots=True)
class Preconditions:
    """What must still be true of the object when it is deleted; otherwise the delete fails with Conflict."""

    uid: Uid | None = None
    revision: Revision | None = None


class Propagation(StrEnum):
    """What a delete does to dependents, as `propagationPolicy` of Kubernetes."""

    BACKGROUND = "Background"
    FOREGROUND = "Foreground"
    ORPHAN = "Orphan"


class Verb(StrEnum):
    """The verbs of a call. `patch_status` is a patch of the subresource `status`."""

    GET = "get"
    LIST = "list"
    WATCH = "watch"
    CREATE = "create"
    PATCH = "patch"
    PATCH_STATUS = "patch_status"
    DELETE = "delete"


class ListOptions(msgspec.Struct, frozen=True, gc=False):
    """Options of a list or a watch: which objects, and from which page or revision."""

    labels: str = ""
    fields: str = ""
    limit: int = 0  # of a list; 0: no pages
    after: str = ""  # of a list: the token of the page before
    since: Revision | None = None  # of a watch
    initial: bool = False  # of a watch: send the present state first
    timeout: float | None = None  # of a watch


class DeleteOptions(msgspec.Struct, frozen=True, gc=False):
    """Options of a delete."""

    preconditions: Preconditions | None = None
    propagation: Propagation | None = None
    grace: int | None = None  # seconds


_LIST: Final = ListOptions()
_DELETE: Final = DeleteOptions()


class Call(msgspec.Struct, frozen=True, gc=False):
    """One request to the server, before it is put on any wire. Built by the verbs of `Api`."""

    verb: Verb
    resource: Resource[Any]
    namespace: str = ""  # empty: of a list or watch all of them; of a cluster-wide object none
    name: str = ""  # of a single object that exists already
    body: Object | Mapping[str, Any] | None = None  # of a create
    patch: Patch | None = None
    list_options: ListOptions = _LIST
    delete_options: DeleteOptions = _DELETE

    @property
    def writes(self) -> bool:
        return self.verb in WRITES

    @property
    def object_name(self) -> str:
        """The name of the object; of a create that of its body, which may be a generateName or empty."""
        body = self.body
        if body is None:
            return self.name
        if isinstance(body, Mapping):
            metadata = body.get("metadata") or {}
            return str(metadata.get("name") or metadata.get("generateName", ""))
        return body.metadata.name or body.metadata.generate_name


WRITES: Final = frozenset({Verb.CREATE, Verb.PATCH, Verb.PATCH_STATUS, Verb.DELETE})


@runtime_checkable
class Batched(Protocol[T]):
    """A watch whose events may be taken in batches, as they have arrived."""

    async def batch(self) -> Sequence[Event[T]]:
        """The next events, at least one; none at the end of the watch."""
        ...


class Api(ABC):
    """An API server. Implement `send` and `stream`; call the verbs."""

    @abstractmethod
    def send(self, call: Call) -> Coroutine[Any, Any, Any]:
        """Make one call, which is not a watch. The answer is what the verb that built the call returns."""

    @abstractmethod
    def stream(self, call: Call) -> AbstractAsyncContextManager[AsyncIterator[Event[Any]]]:
        """Open a watch. See `watch`."""

    # The verbs return the coroutine of `send` and are none themselves: they cost no frame while it runs.

    def get(self, resource: Resource[T], name: str, namespace: str = "") -> Coroutine[Any, Any, T]:
        """A consistent read: never older than any write acknowledged before the call."""
        return self.send(Call(Verb.GET, resource, namespace, name))

    def list(
        self,
        resource: Resource[T],
        namespace: str = "",  # all of them
        *,
        labels: str = "",
        fields: str = "",
        limit: int = 0,  # no pages
        after: str = "",
    ) -> Coroutine[Any, Any, Page[T]]:
        """A consistent snapshot, in pages if `limit` is given. Gone: the snapshot of `after` is compacted, start over."""
        options = ListOptions(labels, fields, limit, after)
        return self.send(Call(Verb.LIST, resource, namespace, list_options=options))

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
        options = ListOptions(labels, fields, since=since, initial=initial, timeout=timeout)
        return self.stream(Call(Verb.WATCH, resource, namespace, list_options=options))

    def create(self, resource: Resource[T], body: T | Mapping[str, Any], namespace: str = "") -> Coroutine[Any, Any, T]:
        return self.send(Call(Verb.CREATE, resource, namespace, body=body))

    def patch(self, resource: Resource[T], name: str, patch: Patch, namespace: str = "") -> Coroutine[Any, Any, T]:
        return self.send(Call(Verb.PATCH, resource, namespace, name, patch=patch))

    def patch_status(
        self, resource: Resource[T], name: str, patch: Patch, namespace: str = ""
    ) -> Coroutine[Any, Any, T]:
        return self.send(Call(Verb.PATCH_STATUS, resource, namespace, name, patch=patch))

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
        """None: the object is gone. An object: it is marked for deletion, and removed when its finalizers (or its grace period) allow."""
        options = DeleteOptions(preconditions, propagation, grace)
        return self.send(Call(Verb.DELETE, resource, namespace, name, delete_options=options))
