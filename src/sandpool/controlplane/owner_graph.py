"""The garbage collector's graph of owner references, as of the last log entry that was read. Pure.

It holds only objects that have owners, or that wait for their dependents. Everything is keyed by uid: an object created again under the same
name is another object.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from sandpool.controlplane.objects.deletion import FOREGROUND, ORPHAN
from sandpool.controlplane.store.record import Change, Record
from sandpool.model.metadata import OwnerReference, Uid


class _Metadata(msgspec.Struct, gc=False, rename="camel"):
    uid: Uid
    owner_references: tuple[OwnerReference, ...] = ()
    finalizers: tuple[str, ...] = ()
    deletion_timestamp: str | None = None


class _Owned(msgspec.Struct, gc=False):
    metadata: _Metadata


_owned = msgspec.json.Decoder(_Owned).decode


class Node(msgspec.Struct, frozen=True, gc=False):
    """The part of an object that the garbage collector needs."""

    key: str
    uid: Uid
    owners: tuple[OwnerReference, ...]
    leaving: bool
    orphans: bool  # waits until its dependents no longer name it
    waits: bool  # waits until its blocking dependents are gone

    @property
    def kept(self) -> bool:
        """Whether the graph holds this object."""
        return bool(self.owners) or self.orphans or self.waits


def node_of(record: Record) -> Node:
    metadata = _owned(record.value).metadata
    leaving = metadata.deletion_timestamp is not None
    return Node(
        record.key,
        metadata.uid,
        metadata.owner_references,
        leaving,
        leaving and ORPHAN in metadata.finalizers,
        leaving and FOREGROUND in metadata.finalizers,
    )


class Graph:
    """`apply` takes changes in order and returns the uids of objects to reconcile."""

    def __init__(self, records: Iterable[Record] = ()) -> None:
        self.nodes: dict[Uid, Node] = {}
        self._dependents: dict[Uid, set[Uid]] = {}
        for record in records:
            self._keep(node_of(record))

    def dependents(self, uid: Uid) -> tuple[Node, ...]:
        """The objects that name this uid as an owner, sorted by uid, so that simulations are reproducible."""
        return tuple(self.nodes[dependent] for dependent in sorted(self._dependents.get(uid, ())))

    def owns(self, uid: Uid) -> bool:
        return uid in self._dependents

    def apply(self, change: Change) -> set[Uid]:
        node = node_of(change.record)
        before = self.nodes.get(node.uid)
        if change.deleted:
            self._drop(node.uid)
            return self._touched(before) | self._dependents.get(node.uid, set())
        if node == before or (before is None and not node.kept):
            return set()  # the usual case
        self._drop(node.uid)
        self._keep(node)
        touched = self._touched(before)
        if node.uid in self.nodes:
            touched.add(node.uid)
        if node.waits:
            touched |= self._dependents.get(node.uid, set())
        return touched

    def _touched(self, node: Node | None) -> set[Uid]:
        """The owners in the graph that may be waiting for this object."""
        return {reference.uid for reference in node.owners if reference.uid in self.nodes} if node else set()

    def _keep(self, node: Node) -> None:
        if not node.kept:
            return
        self.nodes[node.uid] = node
        for reference in node.owners:
            self._dependents.setdefault(reference.uid, set()).add(node.uid)

    def _drop(self, uid: Uid) -> None:
        node = self.nodes.pop(uid, None)
        if node is None:
            return
        for reference in node.owners:
            dependents = self._dependents.get(reference.uid)
            if dependents is not None:
                dependents.discard(uid)
                if not dependents:
                    del self._dependents[reference.uid]
