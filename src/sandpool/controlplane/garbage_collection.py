"""The garbage collector: deletes objects that no living owner holds any more.

Level-triggered: the graph only says which objects to check. Every decision re-reads the object and its owners from the store, and every write
carries uid and resourceVersion as preconditions. So a lost or late event, a restart or a race costs another check, never an object.

A tenant can link its objects in any way, with thousands of references each. So every namespace has its own task, which works in small
portions (base/turns.py): a namespace with many references delays only itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum
from itertools import islice
from typing import Any

from sandpool.base.clock import Clock
from sandpool.base.turns import Turns
from sandpool.controlplane.log_follower import follow
from sandpool.controlplane.objects.deletion import FOREGROUND, ORPHAN
from sandpool.controlplane.objects.document import decode
from sandpool.controlplane.objects.keys import key_of, parse_key
from sandpool.controlplane.objects.objects import Objects
from sandpool.controlplane.objects.options import DeleteOptions
from sandpool.controlplane.objects.recent import Recent
from sandpool.controlplane.owner_graph import Graph, Node, node_of
from sandpool.controlplane.store.port import Store, Watcher
from sandpool.controlplane.store.record import Record
from sandpool.kube.api import Preconditions, Propagation
from sandpool.kube.errors import ApiError, Conflict, NotFound
from sandpool.model import kinds
from sandpool.model.metadata import OwnerReference, Revision, Uid
from sandpool.model.patches import merge_patch
from sandpool.model.resource import Resource
from sandpool.telemetry.log import logger

_log = logger(__name__)

_BATCH = 200
_RETRY = 1.0
_EACH = 512
"""The minimum cost of checking one object, in the bytes that base/turns.py counts."""
_EACH_OWNER = 64
_PORTION = 4096  # work, in the same bytes, between two turns
_KNOWN = 4096  # owners whose state at their revision is cached
_SERVED: dict[tuple[str, str], Resource[Any]] = {(each.api_version, each.kind): each for each in kinds.ALL}
"""As in Kubernetes, an owner is looked up in the API version that the reference names. If that version is not served, the owner's state is
unknown and the dependent is left alone."""


class Owner(Enum):
    """The state of an owner. States that keep a dependent alive come first: `_owner_states` relies on the order."""

    SOLID = "alive, and not waiting for its dependents"
    UNKNOWN = "of a kind, version or scope that cannot be looked up: left alone"
    WAITING = "being deleted in the foreground"
    ABSENT = "gone"


@dataclass(frozen=True, slots=True)
class Keep:
    """Leave the object: an owner is alive, or cannot be looked up."""


@dataclass(frozen=True, slots=True)
class Disown:
    """The object has a living owner: remove its references to other owners that are gone or being deleted."""

    uids: frozenset[Uid]


@dataclass(frozen=True, slots=True)
class Collect:
    """No owner is alive: delete the object. Without a propagation, its own finalizers decide about its dependents."""

    propagation: Propagation | None = None


Decision = Keep | Disown | Collect


def decide(node: Node, owners: dict[Uid, Owner], *, has_dependents: bool) -> Decision:
    """Decides what to do with an object whose owners are in these states. Pure."""
    states = set(owners.values())
    if not states or node.leaving or Owner.UNKNOWN in states:
        return Keep()
    useless = frozenset(uid for uid, state in owners.items() if state is not Owner.SOLID)
    if Owner.SOLID in states:
        return Disown(useless) if useless else Keep()
    if Owner.WAITING in states and has_dependents:
        return Collect(Propagation.FOREGROUND)
    return Collect()


class GarbageCollector:
    """The controller: `run` until cancelled. Objects are enqueued by uid, each at most once."""

    def __init__(self, store: Store, objects: Objects, clock: Clock) -> None:
        self._store = store
        self._objects = objects
        self._clock = clock
        self._graph = Graph()
        self._pending: dict[str, dict[Uid, None]] = {}  # by namespace: objects to check, in order, each once
        self._busy: set[str] = set()  # namespaces that have a running task
        self._turns = Turns()
        self._owners: Recent[Revision, tuple[Uid, bool]] = Recent(_KNOWN, _KNOWN)  # uid, and whether it is WAITING
        self._wake = asyncio.Event()
        self._last_error = ""  # logged once per batch: on a full disk every object has the same

    async def run(self) -> None:
        await follow(self.load, self._observe, self._work)

    def load(self) -> Watcher:
        snapshot = self._store.scan("")
        self._graph = Graph(snapshot.records)
        self._enqueue(self._graph.nodes)
        return self._store.watch("", snapshot.revision)

    def _enqueue(self, uids: Iterable[Uid]) -> None:
        nodes, pending = self._graph.nodes, self._pending
        for uid in uids:
            node = nodes.get(uid)
            if node is not None:  # else it is gone, or has no owners
                pending.setdefault(_namespace(node), {})[uid] = None
        if pending:
            self._wake.set()

    async def _observe(self, watcher: Watcher) -> None:
        while True:
            for change in await watcher.changes():
                if touched := self._graph.apply(change):
                    self._enqueue(sorted(touched))

    async def _work(self, tasks: asyncio.TaskGroup) -> None:
        self._busy.clear()
        while True:
            await self._wake.wait()
            self._wake.clear()
            for namespace in self._pending:
                if namespace not in self._busy:
                    self._busy.add(namespace)
                    tasks.create_task(self._serve(namespace, tasks))

    async def _serve(self, namespace: str, tasks: asyncio.TaskGroup) -> None:
        """Works on one namespace until nothing in it is pending."""
        while pending := self._pending.get(namespace):
            batch = list(islice(pending, _BATCH))
            for uid in batch:
                del pending[uid]
            doubtful = [uid for uid in batch if not await self._owned(uid)]
            again = [uid for uid in await asyncio.gather(*map(self.reconcile, doubtful)) if uid is not None]
            if again:
                _log.warning("could not collect", objects=len(again), such_as=self._last_error)
                tasks.create_task(self._enqueue_later(again))
        del self._pending[namespace]
        self._busy.discard(namespace)

    async def _enqueue_later(self, uids: list[Uid]) -> None:
        await self._clock.sleep(_RETRY)
        self._enqueue(uids)

    async def _owned(self, uid: Uid) -> bool:
        """Whether all owners are alive, so that there is nothing to do: the usual case. The graph may lag behind the store here; the change
        that it has not read yet will enqueue the object again if it matters."""
        node = self._graph.nodes.get(uid)
        if node is None:
            return True
        if node.orphans or node.waits:
            return False
        await self._turns.take(_namespace(node), _EACH)
        try:
            return all(state is Owner.SOLID for state in (await self._owner_states(node)).values())
        except Exception:  # `reconcile` runs into the same error and reports it
            return False

    async def reconcile(self, uid: Uid) -> Uid | None:
        """Reconciles one object. Returns its uid if that failed and must be retried."""
        node = self._graph.nodes.get(uid)
        record = self._store.get(node.key) if node is not None else None
        if node is None or record is None:
            return None
        await self._turns.take(_namespace(node), _EACH + len(record.value))
        record = self._store.get(node.key)
        if record is None:
            return None
        node = node_of(record)
        if node.uid != uid or parse_key(node.key) is None:
            return None
        try:
            if node.orphans:
                await self._orphan_dependents(node, record)
            elif node.waits:
                await self._await_dependents(node, record)
            else:
                await self._collect_or_disown(node, record)
        except NotFound:
            return None
        except Conflict:
            self._enqueue([uid])  # it changed meanwhile
        except ApiError as error:
            self._last_error = f"{node.key}: {error}"
            return uid
        except Exception as error:  # one unexpected object must not end collection, and the cluster with it
            self._last_error = f"{node.key}: {error}"
            _log.error("could not collect", exc=error, key=node.key)
            return uid
        return None

    async def _collect_or_disown(self, node: Node, record: Record) -> None:
        owners = await self._owner_states(node)
        match decide(node, owners, has_dependents=self._graph.owns(node.uid)):
            case Disown(uids):
                await self._write_owners(node, record, lambda reference: reference["uid"] not in uids)
            case Collect(propagation):
                await self._delete(node, record.revision, propagation)

    async def _owner_states(self, node: Node) -> dict[Uid, Owner]:
        """The state of each owner. If several references name one uid, the state that keeps the object alive wins."""
        owners: dict[Uid, Owner] = {}
        work = 0
        for reference in node.owners:
            key = _key_of_owner(node, reference)
            found = self._store.get(key) if key else None
            known = self._owners.get(found.revision) if found is not None else None
            work += _EACH_OWNER if found is None or known is not None else _EACH_OWNER + len(found.value)
            if work > _PORTION:
                await self._turns.take(_namespace(node), work)
                work = 0
            if not key:
                state = Owner.UNKNOWN
            elif found is None:
                state = Owner.ABSENT
            else:
                uid, waits = known or self._observe_owner(found)
                state = Owner.ABSENT if uid != reference.uid else Owner.WAITING if waits else Owner.SOLID
            states = (owners.get(reference.uid, Owner.ABSENT), state)
            owners[reference.uid] = next(state for state in Owner if state in states)
        return owners

    def _observe_owner(self, owner: Record) -> tuple[Uid, bool]:
        node = node_of(owner)
        return self._owners.keep(owner.revision, (node.uid, node.waits), 1)

    async def _orphan_dependents(self, node: Node, record: Record) -> None:
        """Orphaning: removes the references to the object from its dependents, then the object's `orphan` finalizer."""
        for dependent in self._graph.dependents(node.uid):
            found = self._store.get(dependent.key)
            if found is None:
                continue
            await self._turns.take(_namespace(node), _EACH + len(found.value))
            present = node_of(found)
            if present.uid != dependent.uid:
                continue
            try:
                await self._write_owners(present, found, lambda reference: reference["uid"] != node.uid)
            except NotFound:
                continue
        await self._drop_finalizer(node, record, ORPHAN)

    async def _await_dependents(self, node: Node, record: Record) -> None:
        """Foreground deletion: blocking dependents are deleted first. Their removal enqueues the owner again."""
        blocking: list[Node] = []
        work = 0
        for dependent in self._graph.dependents(node.uid):
            work += _EACH_OWNER * len(dependent.owners)
            if work > _PORTION:
                await self._turns.take(_namespace(node), work)
                work = 0
            if any(reference.uid == node.uid and _blocks(dependent, reference, node) for reference in dependent.owners):
                blocking.append(dependent)
        if not blocking:
            await self._drop_finalizer(node, record, FOREGROUND)
        elif await self._in_cycle(node):
            await self._unblock(node, record)
        else:
            self._enqueue(dependent.uid for dependent in blocking if not dependent.waits)

    async def _in_cycle(self, node: Node) -> bool:
        """Whether the object is part of a cycle of owners that wait for each other. The change that closes a cycle (a deletion, or an edit
        of an object that is already being deleted) is a change of one of its objects, so that object is reconciled and detects the cycle."""
        seen: set[Uid] = set()
        above = [node]
        work = 0
        while above:
            dependent = above.pop()
            for reference in dependent.owners:
                work += _EACH_OWNER
                if work > _PORTION:
                    await self._turns.take(_namespace(node), work)
                    work = 0
                owner = self._graph.nodes.get(reference.uid)
                if owner is None or owner.uid in seen or not _blocks(dependent, reference, owner):
                    continue
                if owner.uid == node.uid:
                    return True
                seen.add(owner.uid)
                above.append(owner)
        return False

    async def _unblock(self, node: Node, record: Record) -> Record:
        """Clears blockOwnerDeletion in all its references, so that its owners no longer wait for it."""
        references = decode(record)["metadata"]["ownerReferences"]
        freed = [{**reference, "blockOwnerDeletion": False} for reference in references]
        return await self._patch(node, record, {"ownerReferences": freed})

    async def _write_owners(self, node: Node, record: Record, keep: Callable[[dict[str, Any]], bool]) -> None:
        references = decode(record)["metadata"].get("ownerReferences") or []
        kept = [reference for reference in references if keep(reference)]
        if len(kept) != len(references):
            await self._patch(node, record, {"ownerReferences": kept or None})

    async def _drop_finalizer(self, node: Node, record: Record, finalizer: str) -> None:
        finalizers = decode(record)["metadata"].get("finalizers") or []
        await self._patch(node, record, {"finalizers": [held for held in finalizers if held != finalizer] or None})

    async def _patch(self, node: Node, record: Record, metadata: dict[str, Any]) -> Record:
        resource, namespace, name = _place(node)
        body = {"metadata": {**metadata, "uid": node.uid, "resourceVersion": str(record.revision)}}
        return (await self._objects.patch(resource, namespace, name, merge_patch(body))).record

    async def _delete(self, node: Node, revision: Revision, propagation: Propagation | None) -> None:
        resource, namespace, name = _place(node)
        preconditions = Preconditions(node.uid, revision)
        options = DeleteOptions(preconditions=preconditions, propagation=propagation)
        await self._objects.delete(resource, namespace, name, options)


def _namespace(node: Node) -> str:
    """The tenant that pays for the object's turns: its namespace. Empty for a cluster-scoped kind, whose work counts as the operator's."""
    _, _, rest = node.key.split("/", 2)
    return rest.rpartition("/")[0]


def _key_of_owner(node: Node, reference: OwnerReference) -> str:
    """The key of the owner that a reference names; empty if it cannot be looked up."""
    owner = _SERVED.get((reference.api_version, reference.kind))
    dependent = parse_key(node.key)
    if owner is None or dependent is None:
        return ""
    resource, namespace, _ = dependent
    if owner.namespaced and not resource.namespaced:
        return ""
    return key_of(owner, namespace, reference.name)


def _blocks(dependent: Node, reference: OwnerReference, owner: Node) -> bool:
    """Whether the owner waits for the dependent. A reference with the owner's uid but another key (from another namespace, say) blocks nothing."""
    return owner.waits and bool(reference.block_owner_deletion) and _key_of_owner(dependent, reference) == owner.key


def _place(node: Node) -> tuple[Resource[Any], str, str]:
    parsed = parse_key(node.key)
    assert parsed is not None, node.key  # only for kinds that are served
    return parsed
