"""When a pod is to be looked at: after a change that a reconcile reads, and not after every one.

Two tell of changes, the cache and the backend. Not looked at is what we have just written ourselves, and what is only on its way: a new
pod is told of when it is ready or after a while, one that ends when nothing of it is left. Labels need no decision: the
backend is told of them at once.
"""

from __future__ import annotations

from collections.abc import Callable

from sandpool.loop.cache import Cache
from sandpool.model.metadata import Key, Uid
from sandpool.node.backend import Backend, Running, Started, Waiting
from sandpool.node.kubelet.ledger import Ledger
from sandpool.node.kubelet.pod_events import ON_ITS_WAY
from sandpool.node.kubelet.pods import Json, NodePod


class Waking:
    """`wake` wants a name looked at, and is told why."""

    def __init__(
        self, pods: Cache[NodePod], backend: Backend, ledger: Ledger, node: str, wake: Callable[[Key, str], object]
    ) -> None:
        self._pods = pods
        self._backend = backend
        self._ledger = ledger
        self._node = node
        self._wake = wake
        self.saying: dict[Uid, Json] = {}  # statuses that are just being written
        self.deleting: set[Uid] = set()  # pods that are just being removed, when nothing is left of them

    def changed(self, uid: Uid) -> None:
        """Something that a reconcile reads is different, and is not kept by the cache."""
        key = self._ledger.key_of(uid)
        if key is not None:
            self._wake(key, "backend")

    def moved(self, uid: Uid) -> None:
        """The backend has something else of the pod."""
        key = self._ledger.key_of(uid)
        if key is None:
            return
        pod, seen = self._pods.get(key), self._backend.look(uid)
        if pod is not None and seen is not None and pod.metadata.uid == uid:
            if seen.stopping and pod.metadata.leaving:
                return
            if not pod.acknowledged and self._ledger.entry(key, uid).awaited and coming_up(pod, seen):
                return
        self._wake(key, "backend")

    def stepped(self, old: NodePod | None, new: NodePod | None) -> None:
        """The cache has something else of a pod."""
        pod = new if new is not None else old
        assert pod is not None
        if pod.spec.node_name not in ("", self._node) and (old is None or old.spec.node_name != ""):
            return  # another node's
        if new is None:
            if pod.metadata.uid in self.deleting:
                return
        elif old is not None and self._same(old, new):
            return
        self._wake(pod.metadata.key, "Pod")

    def _same(self, old: NodePod, new: NodePod) -> bool:
        """Whether a reconcile would find no difference, or what it has just said."""
        before, after = old.metadata, new.metadata
        if before.labels != after.labels and not self._relabelled(new):
            return False
        return (
            (old.status == new.status or self.saying.get(after.uid) == new.status)
            and before.deletion_timestamp == after.deletion_timestamp
            and before.deletion_grace_period_seconds == after.deletion_grace_period_seconds
            and old.spec.node_name == new.spec.node_name
            and old.spec.scheduling_gates == new.spec.scheduling_gates
        )

    def _relabelled(self, pod: NodePod) -> bool:
        """Whether the backend knows the labels now. A pod that is just being started is left to its next reconcile."""
        meta = pod.metadata
        entry = self._ledger.find(meta.key, meta.uid)
        if entry is None or entry.labels is None or self._backend.look(meta.uid) is None:
            return False
        self._backend.relabel(meta.uid, meta.labels)
        entry.labels = meta.labels
        return True


def coming_up(pod: NodePod, seen: Running) -> bool:
    """Whether there is nothing to tell of a pod but that it is being started, and nobody to be asked how it is."""
    for container in (*seen.init, *seen.containers):
        state = container.state
        if isinstance(state, Waiting):
            if state.message or state.reason not in ON_ITS_WAY:
                return False
        elif not isinstance(state, Started) or state.ready:
            return False
    return not any(container.tended for container in pod.spec.lasting)
