"""The namespace controller: creates the default namespaces and a default ServiceAccount in each, and empties namespaces that are deleted.

Level-triggered: a namespace is reconciled when it, or something in it, changed, and the store says what to do. An interrupted deletion
continues with what is left. Each namespace has its own task, which works in small portions (base/turns.py): a large namespace that takes long
to delete does not delay others.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from sandpool.base.clock import Clock
from sandpool.base.turns import Turns
from sandpool.controlplane.log_follower import follow
from sandpool.controlplane.objects.collection import pages
from sandpool.controlplane.objects.document import Document, decode, finalizers_of
from sandpool.controlplane.objects.keys import key_of, parse_key, prefix_of
from sandpool.controlplane.objects.objects import Objects
from sandpool.controlplane.objects.options import DeleteOptions
from sandpool.controlplane.store.port import Store, Watcher
from sandpool.controlplane.store.record import Change, Record
from sandpool.kube.api import Preconditions, Propagation
from sandpool.kube.errors import AlreadyExists, ApiError, Conflict, Forbidden, NotFound
from sandpool.model import kinds
from sandpool.model.metadata import Uid
from sandpool.model.patches import merge_patch
from sandpool.model.resource import Resource
from sandpool.model.times import seconds
from sandpool.telemetry.log import logger

MOST = 20
"""How many finalizers, or failures, the message of a condition names."""
# Type of each condition, with its reason and message while there is no problem.
_ALL_CLEAR = (
    ("NamespaceDeletionDiscoveryFailure", "ResourcesDiscovered", "All resources successfully discovered"),
    ("NamespaceDeletionGroupVersionParsingFailure", "ParsedGroupVersions", "All legacy kube types successfully parsed"),
    (
        "NamespaceDeletionContentFailure",
        "ContentDeleted",
        "All content successfully deleted, may be waiting on finalization",
    ),
    ("NamespaceContentRemaining", "ContentRemoved", "All content successfully removed"),
    ("NamespaceFinalizersRemaining", "ContentHasNoFinalizers", "All content-preserving finalizers finished"),
)
DEFAULT_NAMESPACES = ("default", "kube-system", "kube-public", "kube-node-lease")
_NAMESPACED = tuple(resource for resource in kinds.ALL if resource.namespaced)
_PREFIX = prefix_of(kinds.NAMESPACES)
_ACCOUNTS = prefix_of(kinds.SERVICE_ACCOUNTS)
_RETRY = 1.0
_log = logger(__name__)


def remaining_conditions(
    present: Iterable[Document],
    remaining: Mapping[Resource[Any], tuple[Record, ...]],
    finalizers: Mapping[str, int],
    failures: Iterable[str],
    now: datetime,
) -> list[Document]:
    """The five conditions of a namespace that is being deleted. One whose status does not change keeps its lastTransitionTime."""
    problems = _problems(remaining, finalizers, sorted(failures))
    before = {condition.get("type"): condition for condition in present}
    conditions: list[Document] = []
    for kind, reason, message in _ALL_CLEAR:
        status = "False"
        if kind in problems:
            status, (reason, message) = "True", problems[kind]
        old = before.get(kind)
        kept = old.get("lastTransitionTime") if old and old.get("status") == status else None
        since = kept or seconds(now)
        conditions.append(
            {"type": kind, "status": status, "lastTransitionTime": since, "reason": reason, "message": message}
        )
    return conditions


def _problems(
    remaining: Mapping[Resource[Any], tuple[Record, ...]], finalizers: Mapping[str, int], failures: list[str]
) -> dict[str, tuple[str, str]]:
    problems: dict[str, tuple[str, str]] = {}
    if failures:
        message = f"Failed to delete all resource types, {len(failures)} remaining: {_some(failures)}"
        problems["NamespaceDeletionContentFailure"] = ("ContentDeletionFailed", message)
    kinds = sorted(
        f"{resource.plural}.{resource.group} has {len(records)} resource instances"
        for resource, records in remaining.items()
        if records
    )
    if kinds:
        problems["NamespaceContentRemaining"] = (
            "SomeResourcesRemain",
            f"Some resources are remaining: {', '.join(kinds)}",
        )
    if finalizers:
        held = _some([f"{name} in {count} resource instances" for name, count in sorted(finalizers.items())])
        message = f"Some content in the namespace has finalizers remaining: {held}"
        problems["NamespaceFinalizersRemaining"] = ("SomeFinalizersRemain", message)
    return problems


def _some(parts: list[str]) -> str:
    """The first few, joined: objects can have any number of finalizers, and the message is stored."""
    more = [f"and {len(parts) - MOST} more"] if len(parts) > MOST else []
    return ", ".join(parts[:MOST] + more)


async def ensure_namespaces(objects: Objects, names: Iterable[str] = DEFAULT_NAMESPACES) -> None:
    """Creates the namespaces that every cluster has. Safe to call at every start."""
    for name in names:
        try:
            await objects.create(kinds.NAMESPACES, "", {"metadata": {"name": name}})
        except AlreadyExists:
            pass


class NamespaceController:
    """The controller: `run` until cancelled. Each namespace is reconciled by its own task."""

    def __init__(self, store: Store, objects: Objects, clock: Clock) -> None:
        self._store = store
        self._objects = objects
        self._clock = clock
        self._terminating: set[str] = set()
        self._pending: dict[str, None] = {}  # names to reconcile, in order, each once
        self._active: set[str] = set()  # names being reconciled
        self._turns = Turns()
        self._wake = asyncio.Event()
        self._reporting: set[str] = set()  # names that `_enqueue_later` will enqueue
        self._tasks: asyncio.TaskGroup | None = None

    async def run(self) -> None:
        await ensure_namespaces(self._objects)
        await follow(self._load, self._observe, self._work)

    def _load(self) -> Watcher:
        snapshot = self._store.scan(_PREFIX)
        self._terminating.clear()
        self._enqueue(record.key.removeprefix(_PREFIX) for record in snapshot.records)
        return self._store.watch("", snapshot.revision)

    def _enqueue(self, names: Iterable[str]) -> None:
        self._pending.update(dict.fromkeys(names))
        if self._pending:
            self._wake.set()

    async def _observe(self, watcher: Watcher) -> None:
        while True:
            changes = await watcher.changes()
            self._enqueue(name for change in changes if (name := self._affected_namespace(change)))

    def _affected_namespace(self, change: Change) -> str:
        """The namespace to reconcile because of this change, or empty. Values are not decoded."""
        key = change.record.key
        if key.startswith(_PREFIX):
            return key.removeprefix(_PREFIX)
        if change.deleted and key.startswith(_ACCOUNTS):
            return key.removeprefix(_ACCOUNTS).partition("/")[0]
        if self._terminating:
            parsed = parse_key(key)
            if parsed is not None and parsed[1] in self._terminating:
                return self._content_changed(parsed[1])
        return ""

    def _content_changed(self, name: str) -> str:
        """The namespace to reconcile now because something in it changed while it is being deleted, or empty. Only the removal of the last
        object is urgent. Progress is reported a second later, for many changes together, because each report reads all that is left."""
        if not any(self._store.count(prefix_of(resource, name)) for resource in _NAMESPACED):
            return name
        if name not in self._reporting and self._tasks is not None:
            self._reporting.add(name)
            self._tasks.create_task(self._enqueue_later([name]))
        return ""

    async def _work(self, tasks: asyncio.TaskGroup) -> None:
        self._tasks = tasks
        while True:
            await self._wake.wait()
            self._wake.clear()
            for name in [name for name in self._pending if name not in self._active]:
                del self._pending[name]
                self._active.add(name)
                tasks.create_task(self._serve(name, tasks))

    async def _serve(self, name: str, tasks: asyncio.TaskGroup) -> None:
        again = await self._reconcile(name)
        self._active.discard(name)
        if name in self._pending:  # it changed meanwhile
            self._wake.set()
        if again:
            tasks.create_task(self._enqueue_later([name]))

    async def _enqueue_later(self, names: list[str]) -> None:
        await self._clock.sleep(_RETRY)
        self._reporting.difference_update(names)
        self._enqueue(names)

    async def _reconcile(self, name: str) -> bool:
        """Reconciles one namespace. Returns whether to retry."""
        record = self._store.get(key_of(kinds.NAMESPACES, "", name))
        if record is None:
            self._terminating.discard(name)
            return False
        document = decode(record)
        try:
            if "deletionTimestamp" in document["metadata"]:
                self._terminating.add(name)
                await self._empty(name, record, document)
            else:
                await self._ensure_account(name)
        except (NotFound, Forbidden):
            pass  # it was deleted meanwhile: that change enqueues it again
        except Conflict:
            self._enqueue([name])
        except ApiError as error:
            _log.warning("namespace work failed", namespace=name, error=str(error))
            return True
        except (
            Exception
        ) as error:  # an unexpected error in one namespace must not end the controller, and the cluster with it
            _log.error("namespace work failed", exc=error, namespace=name)
            return True
        return False

    async def _ensure_account(self, namespace: str) -> None:
        if self._store.get(key_of(kinds.SERVICE_ACCOUNTS, namespace, "default")) is None:
            try:
                await self._objects.create(kinds.SERVICE_ACCOUNTS, namespace, {"metadata": {"name": "default"}})
            except AlreadyExists:
                pass

    async def _empty(self, name: str, record: Record, document: dict[str, Any]) -> None:
        """Deletes the namespace's content; once nothing is left, removes the finalizer `kubernetes`."""
        finalizers = (document.get("spec") or {}).get("finalizers") or []
        if "kubernetes" not in finalizers:
            return  # it waits for another finalizer
        failures = await self._delete_contents(name)
        remaining = self._contents(name)
        if any(remaining.values()) or failures:
            await self._report(name, record, document, remaining, failures)
            return
        rest = [finalizer for finalizer in finalizers if finalizer != "kubernetes"]
        body = {"metadata": _preconditions(document), "spec": {"finalizers": rest}}
        await self._objects.update(kinds.NAMESPACES, "", name, body, subresource="finalize")

    def _contents(self, name: str) -> dict[Resource[Any], tuple[Record, ...]]:
        return {resource: self._store.scan(prefix_of(resource, name)).records for resource in _NAMESPACED}

    async def _delete_contents(self, name: str) -> list[str]:
        failures: list[str] = []
        for resource, records in self._contents(name).items():
            for size, page in pages(records):
                await self._turns.take(name, size)
                outcomes = await asyncio.gather(*(self._delete(resource, name, record) for record in page))
                failures += [failure for failure in outcomes if failure]
        return failures

    async def _delete(self, resource: Resource[Any], namespace: str, record: Record) -> str:
        metadata = decode(record)["metadata"]
        if "deletionTimestamp" in metadata:
            return ""
        options = DeleteOptions(
            preconditions=Preconditions(uid=Uid(metadata["uid"])), propagation=Propagation.BACKGROUND
        )
        try:
            await self._objects.delete(resource, namespace, metadata["name"], options)
        except (NotFound, Conflict):
            return ""
        except ApiError as error:
            return str(error)
        return ""

    async def _finalizers(self, name: str, remaining: dict[Resource[Any], tuple[Record, ...]]) -> Counter[str]:
        """The finalizers of the remaining objects, with counts."""
        found: Counter[str] = Counter()
        for records in remaining.values():
            for size, page in pages(records):
                await self._turns.take(name, size)
                for record in page:
                    found.update(finalizers_of(decode(record)["metadata"]))
        return found

    async def _report(
        self,
        name: str,
        record: Record,
        document: dict[str, Any],
        remaining: dict[Resource[Any], tuple[Record, ...]],
        failures: list[str],
    ) -> None:
        present = (document.get("status") or {}).get("conditions") or []
        finalizers = await self._finalizers(name, remaining)
        conditions = remaining_conditions(present, remaining, finalizers, failures, self._clock.now())
        body = {"metadata": {"resourceVersion": str(record.revision)}, "status": {"conditions": conditions}}
        await self._objects.patch(kinds.NAMESPACES, "", name, merge_patch(body), subresource="status")
        if failures:
            raise ApiError(f"{len(failures)} objects of namespace {name} could not be deleted: {failures[0]}")


def _preconditions(document: dict[str, Any]) -> dict[str, Any]:
    """Metadata of an update that must apply to exactly this revision of this object."""
    metadata = document["metadata"]
    return {"name": metadata["name"], "uid": metadata["uid"], "resourceVersion": metadata["resourceVersion"]}
