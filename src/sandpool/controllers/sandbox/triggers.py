"""What wakes a sandbox, and how soon. Each cache event is reduced to what it means for the sandbox.

At once: what changes a decision or what a user waits for. Soon: that a start begins, or is stuck. Late: its further
progress. Never: what changes nothing, our own creates and patches among it: their answers were handled when they came.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import Any

from sandpool.base.clock import Clock
from sandpool.controllers.sandbox.memory import Memory
from sandpool.controllers.sandbox.observe import Observer
from sandpool.controllers.sandbox.options import Options
from sandpool.controllers.sandbox.pod import metadata_delta
from sandpool.controllers.sandbox.release import only_claim, releases
from sandpool.controllers.sandbox.service import service_drift
from sandpool.controllers.sandbox.view import Holding, holding, pooled
from sandpool.kube.priority import Priority
from sandpool.loop.controller import Controller
from sandpool.loop.portions import PORTION, in_portions
from sandpool.model import labels as keys
from sandpool.model.claim import SandboxClaim
from sandpool.model.conditions import is_true
from sandpool.model.core import PersistentVolumeClaim, Service
from sandpool.model.metadata import Key, Object
from sandpool.model.pod import Phase, Pod
from sandpool.model.reasons import Type
from sandpool.model.sandbox import GROUP, Sandbox


class Haste(Enum):
    """How soon an event needs a reconcile."""

    NOW = "now"
    SOON = "soon"
    LATE = "late"
    NEVER = "never"


def priority_of(sandbox: Sandbox, pressed: bool = False) -> Priority:
    """What a claim or a user waits for goes before what a pool waits for. `pressed`: claims wait for members that pools make."""
    return Priority.BACKGROUND if pooled(sandbox) and not pressed else Priority.URGENT


def priority_of_change(old: Sandbox | None, new: Sandbox | None, pressed: bool = False) -> Priority:
    """A claim that was handed a Ready sandbox does not wait until the pod's labels follow, and nothing waits for a sandbox that is gone."""
    if new is None:
        return Priority.BACKGROUND
    if old is None:
        return priority_of(new, pressed)
    as_wanted = old.metadata.generation == new.metadata.generation and not new.metadata.leaving
    if as_wanted and is_true(new.status.conditions, Type.READY):
        return Priority.BACKGROUND
    return min(priority_of(old, pressed), priority_of(new, pressed))


def concerns(sandbox: Sandbox) -> tuple[object, ...]:
    """The parts of a sandbox that its controller reads and does not write."""
    meta = sandbox.metadata
    owner = meta.controller
    label, annotation = meta.labels.get, meta.annotations.get
    labels = label(keys.WARM_POOL), label(keys.TEMPLATE_REF_HASH), label(keys.CREATED_BY)
    annotations = annotation(keys.POD_NAME, ""), annotation(keys.TRACE_CONTEXT)
    return meta.uid, meta.generation, meta.leaving, owner.uid if owner else None, labels, annotations


def awakens(old: Sandbox | None, new: Sandbox | None) -> bool:
    """Whether a change of a sandbox needs a reconcile. One that is being deleted needs none: what it controls is garbage-collected with it. When it
    is gone, a reconcile drops the timer of its expiry."""
    if new is None:
        return old is not None and old.spec.shutdown_time is not None
    if new.metadata.leaving:
        return False
    return old is None or (_outside(old) != _outside(new) and concerns(old) != concerns(new))


def _outside(sandbox: Sandbox) -> tuple[object, ...]:
    """Everything that `concerns` may depend on: most events change none of it."""
    meta = sandbox.metadata
    return meta.generation, meta.labels, meta.annotations, meta.owner_references


def pod_haste(old: Pod | None, new: Pod | None, sandbox: Sandbox, drifted: Callable[[Pod], bool]) -> Haste:
    """How soon a change of a pod matters to a sandbox. `drifted`: the pod's metadata is not what the sandbox wants."""
    if new is None:
        return Haste.NOW
    if old is None:
        begins = holding(new, sandbox) is Holding.OURS and _decisive(new)[2:] == _STARTING
        return _beginning(sandbox) if begins else Haste.NOW
    was, now = old.metadata, new.metadata
    still = old.status == new.status and old.spec.node_name == new.spec.node_name
    kept = still and was.owner_references == now.owner_references and was.leaving == now.leaving
    if not kept and _decisive(old) != _decisive(new):
        return Haste.NOW
    changed = was.labels != now.labels or was.annotations != now.annotations
    if changed and (holding(new, sandbox) is not Holding.OURS or drifted(new)):
        return Haste.NOW
    if (still and not changed) or _progress(old) == _progress(new):
        return Haste.NEVER
    if _stuck(new) or (new.held_up and not old.held_up):
        return Haste.SOON
    return Haste.LATE if sandbox.status.conditions else _beginning(sandbox)


def _beginning(sandbox: Sandbox) -> Haste:
    """The beginning of a start is published soon, except for a pool member, which is of no interest before it is ready."""
    return Haste.LATE if pooled(sandbox) else Haste.SOON


def _decisive(pod: Pod) -> tuple[object, ...]:
    """What Ready, Finished and the next step depend on."""
    owner = pod.metadata.controller
    phase = pod.status.phase
    serving = (pod.ips, pod.spec.node_name) if phase == Phase.RUNNING and pod.ready and pod.ips else None
    ended = phase if phase in (Phase.SUCCEEDED, Phase.FAILED) else ""
    return owner.uid if owner else None, pod.metadata.leaving, ended, serving


_STARTING = ("", None)  # neither ended nor serving


def _progress(pod: Pod) -> tuple[object, ...]:
    condition = pod.condition(Type.POD_SCHEDULED)
    scheduled = (condition.status, condition.reason, condition.message) if condition else None
    reported = pod.status.phase, pod.status.reason, pod.status.message, pod.ready, pod.ips, pod.spec.node_name
    return scheduled, reported, pod.held_up, pod.metadata.annotations.get(keys.POD_SPEC_HASH)


def _stuck(pod: Pod) -> bool:
    condition = pod.condition(Type.POD_SCHEDULED)
    return condition is not None and condition.status == "False"


def service_haste(old: Service | None, new: Service | None, sandbox: Sandbox) -> Haste:
    if new is None or new.metadata.leaving:
        return Haste.NOW
    if holding(new, sandbox) is not Holding.OURS:
        return Haste.NEVER if old is not None and _seen_of(old) == _seen_of(new) else Haste.NOW
    wrong = sandbox.spec.service is False or service_drift(sandbox, new) is not None
    return Haste.NOW if wrong else Haste.NEVER


def claim_haste(old: PersistentVolumeClaim | None, new: PersistentVolumeClaim | None, sandbox: Sandbox) -> Haste:
    if new is None:
        return Haste.NOW
    if holding(new, sandbox) is Holding.OURS:
        return Haste.NOW if new.metadata.leaving and not (old and old.metadata.leaving) else Haste.NEVER
    return Haste.NEVER if old is not None and _seen_of(old) == _seen_of(new) else Haste.NOW


def _seen_of(other: Object) -> tuple[object, ...]:
    """The parts of a foreign object that decide whether it can be adopted."""
    meta = other.metadata
    return meta.uid, meta.leaving, meta.owner_references, meta.labels


@dataclass(frozen=True, slots=True)
class Triggers:
    """Connects the caches with the queue, and keeps the memory of a sandbox for as long as it is cached."""

    loop: Controller[Key]
    observer: Observer
    options: Options
    memory: Memory
    clock: Clock
    pressed: Callable[[], bool] = lambda: False  # whether claims wait for members

    def connect(self) -> None:
        caches = self.observer.caches
        caches.sandboxes.subscribe(self._sandbox)
        caches.pods.subscribe(self._pod)
        caches.services.subscribe(self._service)
        caches.volume_claims.subscribe(self._volume_claim)
        caches.pools.subscribe(self._owner)
        caches.claims.subscribe(self._owner)
        if self.options.release_after is not None:
            caches.claims.subscribe(self._claim)

    def _sandbox(self, old: Sandbox | None, new: Sandbox | None) -> None:
        """Nobody else should write this status, but it happens: a write of an earlier leader may take effect late, or another process may still
        believe that it leads. A status that differs from the one we published is corrected."""
        if new is None:
            if old is not None:
                self._gone(old)
        elif old is None:
            self.memory.begin(new.metadata.uid)
        elif old.status != new.status:
            notes = self.memory.of(new.metadata.uid)
            if notes.published is not None and notes.published != new.status:
                pause = notes.dispute(self.clock.monotonic(), self.options.moment)
                self.loop.wake(new.metadata.key, "another status", priority_of(new, self.pressed()), after=pause)
        one = new or old
        if one is not None and awakens(old, new):
            self.loop.wake(one.metadata.key, Sandbox.kind, priority_of_change(old, new, self.pressed()))

    def _gone(self, sandbox: Sandbox) -> None:
        meta, after = sandbox.metadata, self.options.release_after
        if after is not None and self._released(sandbox) and self.observer.pods_of(meta.uid):
            self.memory.remains.setdefault(meta.key, {})[meta.uid] = None
            ours = self.memory.of(meta.uid).releasing  # else the garbage collector works on it
            self.loop.wake(
                meta.key,
                "released",
                Priority.BACKGROUND,
                after=0.0 if ours else max(after, self.options.release_in_hand),
            )
        self.memory.drop(meta.uid)

    def _released(self, sandbox: Sandbox) -> bool:
        return only_claim(sandbox) is not None and not self.observer.owner_alive(sandbox)

    def _claim(self, old: SandboxClaim | None, new: SandboxClaim | None) -> None:
        """A deleted claim releases its sandboxes, unless it was deleted with propagation policy Orphan."""
        if new is not None or old is None or not releases(old.metadata):
            return
        for sandbox in self.observer.by_owner.get(old.metadata.uid):
            self.memory.release(sandbox.metadata.uid, old.metadata.uid, self.clock.monotonic())
            after = self.options.release_after or 0.0
            self.loop.wake(sandbox.metadata.key, "released", Priority.BACKGROUND, after=after)

    def _pod(self, old: Pod | None, new: Pod | None) -> None:
        if new is None and old is not None and self.memory.remains:
            owner = old.metadata.controller
            if owner is not None:
                self.memory.cleared(Key(old.metadata.namespace, owner.name), owner.uid)
        found = self._sandboxes_of_pod(old, new)
        if len(found) > PORTION:
            in_portions(found, partial(self._pod_of, old, new))
            return
        for sandbox in found:
            self._pod_of(old, new, sandbox)

    def _pod_of(self, old: Pod | None, new: Pod | None, sandbox: Sandbox) -> None:
        self._wake(sandbox, "Pod", pod_haste(old, new, sandbox, partial(self._drifted, sandbox)))

    def _drifted(self, sandbox: Sandbox, pod: Pod) -> bool:
        alive = self.observer.owner_alive(sandbox)
        return bool(metadata_delta(sandbox, pod, self.options, owner_alive=alive))

    def _service(self, old: Service | None, new: Service | None) -> None:
        for key in _keys(old, new):
            sandbox = self.observer.caches.sandboxes.get(key)
            if sandbox is not None:
                self._wake(sandbox, "Service", service_haste(old, new, sandbox))

    def _volume_claim(self, old: PersistentVolumeClaim | None, new: PersistentVolumeClaim | None) -> None:
        for key in _keys(old, new):
            for sandbox in self.observer.by_volume_claim.get(key):
                self._wake(sandbox, "PersistentVolumeClaim", claim_haste(old, new, sandbox))

    def _owner(self, old: Object | None, new: Object | None) -> None:
        """When an owner appears, its sandboxes get the labels that it implies."""
        if old is None and new is not None:
            for sandbox in self.observer.by_owner.get(new.metadata.uid):
                self._wake(sandbox, "owner", Haste.NOW)

    def _sandboxes_of_pod(self, old: Pod | None, new: Pod | None) -> Collection[Sandbox]:
        """The sandboxes that control the pod, or did, and those that expect a pod of its name."""
        caches, found = self.observer.caches, dict[Key, Sandbox]()
        for pod in (old, new):
            if pod is None:
                continue
            key, owner = pod.metadata.key, pod.metadata.controller
            if (sandbox := caches.sandboxes.get(key)) is not None:
                found[key] = sandbox
            if owner is not None and owner.name != key.name and (owner.group, owner.kind) == (GROUP, Sandbox.kind):
                its = Key(key.namespace, owner.name)
                if (sandbox := caches.sandboxes.get(its)) is not None:
                    found[its] = sandbox
            for sandbox in self.observer.by_pointer.get(key):
                found[sandbox.metadata.key] = sandbox
        return found.values()

    def _wake(self, sandbox: Sandbox, cause: str, haste: Haste) -> None:
        if haste is Haste.NEVER or sandbox.metadata.leaving:
            return
        after = 0.0
        if haste is not Haste.NOW:
            self.memory.of(sandbox.metadata.uid).waits_since(
                self.clock.monotonic()
            )  # the status change waits from now on
            after = self.options.moment if haste is Haste.SOON else self.options.patience
        self.loop.wake(sandbox.metadata.key, cause, priority_of(sandbox, self.pressed()), after=after)


def _keys(old: Any, new: Any) -> dict[Key, None]:
    """The keys of both objects; a dict, because its order is deterministic."""
    return {obj.metadata.key: None for obj in (old, new) if obj is not None}
