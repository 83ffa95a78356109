"""Owner-reference collection: what no living owner holds any more is deleted.

Level-triggered: the graph only says whom to look at; every decision re-reads the object and its owners from the store and
writes with uid and resourceVersion, so a lost or late event, a restart or a race costs another look, never an object.

A tenant can tie its objects together as it likes, thousands of references each. So every namespace is worked for by a task of its own, a little at
a time (base/turns.py): what one makes difficult takes long for itself only.
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
"""Bytes, as turns count them, that a look at an object takes at least."""
_EACH_OWNER = 64
_PORTION = 4096  # bytes, counted like that, after which a turn is asked for
_KNOWN = 4096  # owners of which is known what they were like at their revision
_SERVED: dict[tuple[str, str], Resource[Any]] = {(each.api_version, each.kind): each for each in kinds.ALL}
"""As Kubernetes does it, an owner is looked up in the version that the reference names: in one that is not served it is not found,
and nothing is concluded from that."""


class Owner(Enum):
    """What an owner reference points at; those that keep an object alive first."""

    SOLID = "alive, and not waiting for its dependents"
    UNKNOWN = "of a kind, version or scope that cannot be looked up: left alone"
    WAITING = "being deleted in the foreground"
    ABSENT = "gone"


@dataclass(frozen=True, slots=True)
class Keep:
    """It has what it needs."""


@dataclass(frozen=True, slots=True)
class Disown:
    """It has a living owner, and references that lead nowhere."""

    uids: frozenset[Uid]


@dataclass(frozen=True, slots=True)
class Collect:
    """Nobody holds it. Without a propagation, its own finalizers say what becomes of its dependents."""

    propagation: Propagation | None = None


Fate = Keep | Disown | Collect


def fate_of(node: Node, owners: dict[Uid, Owner], *, has_dependents: bool) -> Fate:
    """What becomes of an object whose owners are in these states."""
    states = set(owners.values())
    if not states or node.leaving or Owner.UNKNOWN in states:
        return Keep()
    useless = frozenset(uid for uid, state in owners.items() if state is not Owner.SOLID)
    if Owner.SOLID in states:
        return Disown(useless) if useless else Keep()
    if Owner.WAITING in states and has_dependents:
        return Collect(Propagation.FOREGROUND)
    return Collect()


class Collector:
    def __init__(self, store: Store, objects: Objects, clock: Clock) -> None:
        self._store = store
        self._objects = objects
        self._clock = clock
        self._graph = Graph()
        self._pending: dict[str, dict[Uid, None]] = {}  # by namespace: whom to look at, in order, each once
        self._served: set[str] = set()  # namespaces that somebody works for
        self._turns = Turns()
        self._owners: Recent[Revision, tuple[Uid, bool]] = Recent(_KNOWN, _KNOWN)  # uid, and whether it waits
        self._news = asyncio.Event()
        self._trouble = ""  # the last one; on a full disk every object has the same, so it is told once for all of them

    async def run(self) -> None:
        await follow(self._load, self._observe, self._work)

    def _load(self) -> Watcher:
        snapshot = self._store.scan("")
        self._graph = Graph(snapshot.records)
        self._ask(self._graph.nodes)
        return self._store.watch("", snapshot.revision)

    def _ask(self, uids: Iterable[Uid]) -> None:
        nodes, pending = self._graph.nodes, self._pending
        for uid in uids:
            node = nodes.get(uid)
            if node is not None:  # else it is gone, or nobody's
                pending.setdefault(_namespace(node), {})[uid] = None
        if pending:
            self._news.set()

    async def _observe(self, watcher: Watcher) -> None:
        while True:
            for change in await watcher.changes():
                if touched := self._graph.apply(change):
                    self._ask(sorted(touched))

    async def _work(self, tasks: asyncio.TaskGroup) -> None:
        self._served.clear()
        while True:
            await self._news.wait()
            self._news.clear()
            for namespace in self._pending:
                if namespace not in self._served:
                    self._served.add(namespace)
                    tasks.create_task(self._serve(namespace, tasks))

    async def _serve(self, namespace: str, tasks: asyncio.TaskGroup) -> None:
        """Works for one namespace until nothing of it is left to look at."""
        while pending := self._pending.get(namespace):
            batch = list(islice(pending, _BATCH))
            for uid in batch:
                del pending[uid]
            doubtful = [uid for uid in batch if not await self._held(uid)]
            again = [uid for uid in await asyncio.gather(*map(self._judge, doubtful)) if uid is not None]
            if again:
                _log.warning("could not collect", objects=len(again), such_as=self._trouble)
                tasks.create_task(self._ask_later(again))
        del self._pending[namespace]
        self._served.discard(namespace)

    async def _ask_later(self, uids: list[Uid]) -> None:
        await self._clock.sleep(_RETRY)
        self._ask(uids)

    async def _held(self, uid: Uid) -> bool:
        """Whether all its owners live, so that nothing is due: seen at once, which is how nearly every look ends. The graph may
        be behind the store here. Whatever it has not read yet brings us back, if it matters."""
        node = self._graph.nodes.get(uid)
        if node is None:
            return True
        if node.orphans or node.waits:
            return False
        await self._turns.take(_namespace(node), _EACH)
        try:
            return all(state is Owner.SOLID for state in (await self._states(node)).values())
        except Exception:  # whatever is wrong with it, `_judge` says so
            return False

    async def _judge(self, uid: Uid) -> Uid | None:
        """Looks at one object and does what is due. The uid comes back if it could not be done now."""
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
                await self._release_dependents(node, record)
            elif node.waits:
                await self._await_dependents(node, record)
            else:
                await self._settle(node, record)
        except NotFound:
            return None
        except Conflict:
            self._ask([uid])  # it changed while we looked
        except ApiError as error:
            self._trouble = f"{node.key}: {error}"
            return uid
        except Exception as error:  # one object that nobody foresaw must not end collection, and the cluster with it
            self._trouble = f"{node.key}: {error}"
            _log.error("could not collect", exc=error, key=node.key)
            return uid
        return None

    async def _settle(self, node: Node, record: Record) -> None:
        owners = await self._states(node)
        match fate_of(node, owners, has_dependents=self._graph.owns(node.uid)):
            case Disown(uids):
                await self._write_owners(node, record, lambda reference: reference["uid"] not in uids)
            case Collect(propagation):
                await self._delete(node, record.revision, propagation)

    async def _states(self, node: Node) -> dict[Uid, Owner]:
        """Of its owners. Of several references that name one uid, the one that keeps the object counts."""
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
                uid, waits = known or self._learn(found)
                state = Owner.ABSENT if uid != reference.uid else Owner.WAITING if waits else Owner.SOLID
            states = (owners.get(reference.uid, Owner.ABSENT), state)
            owners[reference.uid] = next(state for state in Owner if state in states)
        return owners

    def _learn(self, owner: Record) -> tuple[Uid, bool]:
        node = node_of(owner)
        return self._owners.keep(owner.revision, (node.uid, node.waits), 1)

    async def _release_dependents(self, node: Node, record: Record) -> None:
        """Orphaning: nobody names the leaving object any more, then it may go."""
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
        """Foreground: dependents first. Their removal brings us back here."""
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
        elif await self._waits_for_itself(node):
            await self._unblock(node, record)
        else:
            self._ask(dependent.uid for dependent in blocking if not dependent.waits)

    async def _waits_for_itself(self, node: Node) -> bool:
        """Whether it is in a circle of owners in which each waits for the next. Whatever closes a circle, be it a deletion or
        an edit of what is leaving already, is a change of one that is in it, so that one is looked at and sees it."""
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
        """Its owners need not wait for it any longer."""
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
    """Whose turns are taken for it; a kind without namespaces is the operator's."""
    _, _, rest = node.key.split("/", 2)
    return rest.rpartition("/")[0]


def _key_of_owner(node: Node, reference: OwnerReference) -> str:
    """Where the reference leads to; empty if that cannot be looked up."""
    owner = _SERVED.get((reference.api_version, reference.kind))
    dependent = parse_key(node.key)
    if owner is None or dependent is None:
        return ""
    resource, namespace, _ = dependent
    if owner.namespaced and not resource.namespaced:
        return ""
    return key_of(owner, namespace, reference.name)


def _blocks(dependent: Node, reference: OwnerReference, owner: Node) -> bool:
    """Whether the owner waits for the dependent. A reference that does not lead to the owner (from another namespace, say) holds nothing up."""
    return owner.waits and bool(reference.block_owner_deletion) and _key_of_owner(dependent, reference) == owner.key


def _place(node: Node) -> tuple[Resource[Any], str, str]:
    parsed = parse_key(node.key)
    assert parsed is not None, node.key  # only kinds that are served are judged
    return parsed
