"""Decides which changes in the cache and in the backend trigger a reconcile of their pod.

Our own writes trigger none, and neither do intermediate steps: a new pod is published when it is ready, or after a while, and a pod that
ends when nothing of it is left. Changed labels are passed to the backend at once, without a reconcile.
"""

from __future__ import annotations

from collections.abc import Callable

from sandpool.loop.cache import Cache
from sandpool.model.metadata import Key, Uid
from sandpool.node.backend import Backend, PodStatus, Started, Waiting
from sandpool.node.kubelet.ledger import Ledger
from sandpool.node.kubelet.pod_events import ON_ITS_WAY
from sandpool.node.kubelet.pods import Json, NodePod


class Triggers:
    """Filters changes. `wake` schedules a reconcile of a pod name, for the given cause."""

    def __init__(
        self, pods: Cache[NodePod], backend: Backend, ledger: Ledger, node: str, wake: Callable[[Key, str], object]
    ) -> None:
        self._pods = pods
        self._backend = backend
        self._ledger = ledger
        self._node = node
        self._wake = wake
        self.saying: dict[Uid, Json] = {}  # statuses being written
        self.deleting: set[Uid] = set()  # pods being deleted from the API

    def changed(self, uid: Uid) -> None:
        """Call when something has changed that a reconcile reads and that is not in the cache."""
        key = self._ledger.key_of(uid)
        if key is not None:
            self._wake(key, "backend")

    def moved(self, uid: Uid) -> None:
        """Call when the backend reports a change of the pod."""
        key = self._ledger.key_of(uid)
        if key is None:
            return
        pod, seen = self._pods.get(key), self._backend.pod_status(uid)
        if pod is not None and seen is not None and pod.metadata.uid == uid:
            if seen.stopping and pod.metadata.leaving:
                return
            if not pod.acknowledged and self._ledger.entry(key, uid).awaited and coming_up(pod, seen):
                return
        self._wake(key, "backend")

    def stepped(self, old: NodePod | None, new: NodePod | None) -> None:
        """Call when the cache reports a change of a pod."""
        pod = new if new is not None else old
        assert pod is not None
        if pod.spec.node_name not in ("", self._node) and (old is None or old.spec.node_name != ""):
            return  # belongs to another node
        if new is None:
            if pod.metadata.uid in self.deleting:
                return
        elif old is not None and self._same(old, new):
            return
        self._wake(pod.metadata.key, "Pod")

    def _same(self, old: NodePod, new: NodePod) -> bool:
        """Whether a reconcile would find no difference, or only what it has just written."""
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
        """Passes new labels to the backend. False for a pod that is just being started; its next reconcile does it."""
        meta = pod.metadata
        entry = self._ledger.find(meta.key, meta.uid)
        if entry is None or entry.labels is None or self._backend.pod_status(meta.uid) is None:
            return False
        self._backend.relabel(meta.uid, meta.labels)
        entry.labels = meta.labels
        return True


def coming_up(pod: NodePod, seen: PodStatus) -> bool:
    """Whether a pod is still starting normally, and has no probes that decide its readiness."""
    for container in (*seen.init, *seen.containers):
        state = container.state
        if isinstance(state, Waiting):
            if state.message or state.reason not in ON_ITS_WAY:
                return False
        elif not isinstance(state, Started) or state.ready:
            return False
    return not any(container.probed for container in pod.spec.lasting)
