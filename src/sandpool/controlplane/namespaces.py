"""The life of namespaces: the ones that are always there, a default ServiceAccount in each, and their end with all they hold.

Level-triggered: a namespace is looked at when it or something in it changed, and what is due is read from the store. A
deletion that was interrupted anywhere goes on from what is left. Each is a task of its own that works a little at a time (base/turns.py): however
much one holds, and however long its end takes, others begin and end meanwhile.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable
from typing import Any

from sandpool.base.clock import Clock
from sandpool.base.turns import Turns
from sandpool.controlplane.log_follower import follow
from sandpool.controlplane.namespace_remains import remaining_conditions
from sandpool.controlplane.objects.collection import pages
from sandpool.controlplane.objects.document import decode, finalizers_of
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
from sandpool.telemetry.log import logger

ALWAYS = ("default", "kube-system", "kube-public", "kube-node-lease")
_NAMESPACED = tuple(resource for resource in kinds.ALL if resource.namespaced)
_PREFIX = prefix_of(kinds.NAMESPACES)
_ACCOUNTS = prefix_of(kinds.SERVICE_ACCOUNTS)
_RETRY = 1.0

_log = logger(__name__)


async def ensure_namespaces(objects: Objects, names: Iterable[str] = ALWAYS) -> None:
    """Makes the namespaces that every cluster has. Safe to call at every start."""
    for name in names:
        try:
            await objects.create(kinds.NAMESPACES, "", {"metadata": {"name": name}})
        except AlreadyExists:
            pass


class NamespaceLife:
    def __init__(self, store: Store, objects: Objects, clock: Clock) -> None:
        self._store = store
        self._objects = objects
        self._clock = clock
        self._terminating: set[str] = set()
        self._pending: dict[str, None] = {}  # names to look at, in order, each once
        self._looking: set[str] = set()  # names that are being looked at
        self._turns = Turns()
        self._news = asyncio.Event()
        self._reporting: set[str] = set()  # names to be looked at in a moment
        self._tasks: asyncio.TaskGroup | None = None

    async def run(self) -> None:
        await ensure_namespaces(self._objects)
        await follow(self._load, self._observe, self._work)

    def _load(self) -> Watcher:
        snapshot = self._store.scan(_PREFIX)
        self._terminating.clear()
        self._ask(record.key.removeprefix(_PREFIX) for record in snapshot.records)
        return self._store.watch("", snapshot.revision)

    def _ask(self, names: Iterable[str]) -> None:
        self._pending.update(dict.fromkeys(names))
        if self._pending:
            self._news.set()

    async def _observe(self, watcher: Watcher) -> None:
        while True:
            changes = await watcher.changes()
            self._ask(name for change in changes if (name := self._concerned(change)))

    def _concerned(self, change: Change) -> str:
        """The namespace that is to be looked at because of this change. Nothing is decoded for the many that are not."""
        key = change.record.key
        if key.startswith(_PREFIX):
            return key.removeprefix(_PREFIX)
        if change.deleted and key.startswith(_ACCOUNTS):
            return key.removeprefix(_ACCOUNTS).partition("/")[0]
        if self._terminating:
            parsed = parse_key(key)
            if parsed is not None and parsed[1] in self._terminating:
                return self._stirred(parsed[1])
        return ""

    def _stirred(self, name: str) -> str:
        """Something in a namespace that is being deleted changed. Only the last thing to leave matters at once; that there
        is less than before is reported after a moment, for many changes together: each report looks at all that is left."""
        if not any(self._store.count(prefix_of(resource, name)) for resource in _NAMESPACED):
            return name
        if name not in self._reporting and self._tasks is not None:
            self._reporting.add(name)
            self._tasks.create_task(self._ask_later([name]))
        return ""

    async def _work(self, tasks: asyncio.TaskGroup) -> None:
        self._tasks = tasks
        while True:
            await self._news.wait()
            self._news.clear()
            for name in [name for name in self._pending if name not in self._looking]:
                del self._pending[name]
                self._looking.add(name)
                tasks.create_task(self._serve(name, tasks))

    async def _serve(self, name: str, tasks: asyncio.TaskGroup) -> None:
        again = await self._look(name)
        self._looking.discard(name)
        if name in self._pending:  # it changed while we looked
            self._news.set()
        if again:
            tasks.create_task(self._ask_later([name]))

    async def _ask_later(self, names: list[str]) -> None:
        await self._clock.sleep(_RETRY)
        self._reporting.difference_update(names)
        self._ask(names)

    async def _look(self, name: str) -> bool:
        """Does what is due for one namespace. Whether that could not be done now."""
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
            pass  # it went, or began to, while we looked: that change brings us back
        except Conflict:
            self._ask([name])
        except ApiError as error:
            _log.warning("namespace work failed", namespace=name, error=str(error))
            return True
        except (
            Exception
        ) as error:  # one namespace that nobody foresaw must not end all others, and the cluster with them
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
        """Deletes all that is in it; once nothing is left, gives the namespace free."""
        finalizers = (document.get("spec") or {}).get("finalizers") or []
        if "kubernetes" not in finalizers:
            return  # what holds it now is not ours
        failures = await self._delete_contents(name)
        remaining = self._contents(name)
        if any(remaining.values()) or failures:
            await self._report(name, record, document, remaining, failures)
            return
        rest = [finalizer for finalizer in finalizers if finalizer != "kubernetes"]
        body = {"metadata": _same(document), "spec": {"finalizers": rest}}
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
        """What holds what is left, and how often."""
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


def _same(document: dict[str, Any]) -> dict[str, Any]:
    """Metadata of an update that is meant for this state of this object only."""
    metadata = document["metadata"]
    return {"name": metadata["name"], "uid": metadata["uid"], "resourceVersion": metadata["resourceVersion"]}
