"""The kubelet: observe, plan, apply. A work item is the name of a pod; plan.py decides about it.

A reconcile is triggered when the pod changes in the cache, or when the backend reports a change in what it runs. All state in memory
here may be lost: it is rebuilt from the API and the backend.
"""

from __future__ import annotations

import asyncio
import random as randomness
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from sandpool.base.clock import Clock
from sandpool.base.errors import NodeError
from sandpool.base.offload import Offload
from sandpool.kube.api import Api
from sandpool.kube.priority import Priority
from sandpool.loop.cache import Cache
from sandpool.loop.controller import Controller, Limits
from sandpool.loop.events import Events, NullEvents
from sandpool.loop.manager import Manager, Parts
from sandpool.loop.outcome import Done
from sandpool.loop.reflector import Reflector, Scope
from sandpool.loop.writes import Writes
from sandpool.model.core import RuntimeClass
from sandpool.model.kinds import NODES, RUNTIME_CLASSES
from sandpool.model.metadata import Key, Uid
from sandpool.model.pod import Node
from sandpool.node.backend import Backend
from sandpool.node.kubelet import status
from sandpool.node.kubelet.apply import Applier
from sandpool.node.kubelet.containers import Trouble
from sandpool.node.kubelet.content_budget import ContentBudget, total
from sandpool.node.kubelet.downward import NodeInfo
from sandpool.node.kubelet.ledger import Entry, Ledger
from sandpool.node.kubelet.node import DiskWatch, Heartbeat
from sandpool.node.kubelet.options import KubeletOptions
from sandpool.node.kubelet.placement import NodeFacts
from sandpool.node.kubelet.plan import Bind, Delete, Plan, PodView, Publish, Relabel, Start, Step, plan_pod
from sandpool.node.kubelet.pod_events import EventEmitter
from sandpool.node.kubelet.pods import NODE_PODS, NodePod, PodTransform
from sandpool.node.kubelet.pre_stop import PreStopHooks
from sandpool.node.kubelet.probe_runner import ProbeRunner
from sandpool.node.kubelet.prober import Prober
from sandpool.node.kubelet.references import Unresolved
from sandpool.node.kubelet.runtimes import Offering, RuntimeClasses
from sandpool.node.kubelet.triggers import Triggers
from sandpool.node.kubelet.volume_claims import ClaimCleaner, ClaimDirectories
from sandpool.node.kubelet.volume_refresh import Refresher
from sandpool.telemetry.log import logger
from sandpool.telemetry.metrics import Metrics
from sandpool.telemetry.reconcile_history import ReconcileHistory, note

log = logger(__name__)


@dataclass(frozen=True, slots=True)
class KubeletServices:
    """What a kubelet uses besides the API and its backend. Without `offering`, a pod may name any runtime class."""

    events: Events = field(default_factory=NullEvents)
    offering: Offering | None = None
    folders: ClaimDirectories | None = None
    disk: DiskWatch | None = None


class Kubelet:
    """Runs the pods of one node until it is cancelled. It opens the backend and closes it."""

    def __init__(
        self,
        api: Api,
        backend: Backend,
        clock: Clock,
        options: KubeletOptions = KubeletOptions(),
        around: KubeletServices = KubeletServices(),
        *,
        metrics: Metrics | None = None,
        history: ReconcileHistory | None = None,
        random: Callable[[], float] = randomness.random,
    ) -> None:
        metrics = Metrics() if metrics is None else metrics
        history = ReconcileHistory() if history is None else history
        self._backend = backend
        self._clock = clock
        self._options = options
        self._around = around
        self.pods: Cache[NodePod] = Cache(NODE_PODS, self._holds, keep=PodTransform())
        self.nodes: Cache[Node] = Cache(NODES, lambda node: node.metadata.name == options.node)
        self.classes: Cache[RuntimeClass] = Cache(RUNTIME_CLASSES)
        writes = Writes(api, (self.pods, self.nodes, self.classes))
        self.ledger = Ledger()
        self._triggers = Triggers(self.pods, backend, self.ledger, options.node, self._wake)
        self._events = EventEmitter(around.events, self._pod_of, options.pace, routine=options.routine_events)
        runner = ProbeRunner(backend, clock)
        self.prober = Prober(runner.run, clock, self._triggers.changed, self._events.probed)
        self.hooks = PreStopHooks(runner.run, clock, self._triggers.changed, self._events.hook_failed)
        self._node_info = NodeInfo(options.node, options.address, options.capacity)
        self._offload = Offload()
        self.content = ContentBudget(total(options.capacity) if options.content is None else options.content)
        if options.looks_up:
            metrics.shares["content_bytes"] = self.content.shares
        self._applier = Applier(
            writes,
            backend,
            self._node_info,
            self.hooks,
            self._claimed,
            self._events.warned,
            offload=self._offload,
            holding=self.content,
            looks_up=options.looks_up,
        )
        self._runtimes = RuntimeClasses(writes, self.classes, clock, options.pace.renew)
        limits = Limits(workers=options.workers, shared=True, longest_delay=60.0)
        self.controller: Controller[Key] = Controller("kubelet", self.reconcile, clock, metrics, history, limits)
        self._manager = Manager(self._parts(writes, clock, metrics, random))

    def _parts(self, writes: Writes, clock: Clock, metrics: Metrics, random: Callable[[], float]) -> Parts:
        options = self._options
        self.pods.subscribe(self._triggers.stepped)
        self.controller.on(self.nodes, self._unplaced, reduce=lambda node: (node.metadata.labels, node.spec))
        one = Scope(fields=f"metadata.name={options.node}")
        mine = Scope(fields="" if options.places else f"spec.nodeName={options.node}")
        reflectors: list[Reflector[Any]] = [
            Reflector(writes, self.nodes, clock, metrics, random, one),
            Reflector(writes, self.pods, clock, metrics, random, mine),
        ]
        disk = self._around.disk
        heartbeat = Heartbeat(writes, self.nodes, clock, options, lambda: self._runtime, self._runtimes, disk)
        refresher = Refresher(
            writes, self._backend, self.pods, self._node_info, clock, options.pace.refresh, self._offload, self.content
        )
        services = [heartbeat.run, self.prober.run, self.hooks.run, refresher.run]
        if self._around.offering is not None:
            self.controller.on(self.classes, self._unplaced, reduce=lambda one: one.handler)
            reflectors.append(Reflector(writes, self.classes, clock, metrics, random))
            services.append(self._runtimes.run)
        else:
            self._runtimes.set({})
        if self._around.folders is not None:
            keeper = ClaimCleaner(writes, self._around.folders, self.ledger.claims, clock, options.pace.tidy)
            services.append(keeper.run)
        return Parts(reflectors=reflectors, controllers=(self.controller,), services=services, prepare=self._open)

    @property
    def ready(self) -> asyncio.Event:
        """Set while the kubelet runs pods."""
        return self._manager.ready

    async def run(self) -> None:
        try:
            await self._manager.run(asyncio.Event())
        finally:
            await self._backend.close()

    async def _open(self) -> None:
        """Called when the caches are filled: opens the backend and finds what it still has of pods that are gone."""
        if self._around.offering is not None:
            self._runtimes.set(await self._around.offering())
            # Before the node is ready, because a pod that names a RuntimeClass is refused while the class is missing.
            await self._runtimes.reconcile()
        await self._backend.open(self._triggers.moved)
        for seen in self._backend.list_pods():
            self.ledger.entry(seen.key, seen.uid)
            self.controller.wake(seen.key, "found")

    @property
    def _runtime(self) -> str:
        return self._options.runtime or f"{self._backend.name}://1"

    def _holds(self, pod: NodePod) -> bool:
        return self._options.places or pod.spec.node_name == self._options.node

    def _wake(self, key: Key, cause: str) -> None:
        """Schedules a reconcile. Starts have priority over ends, because users wait for them: thousands of pods deleted together do not delay
        the first new one."""
        pod = self.pods.get(key)
        ends = pod is None or pod.metadata.leaving
        self.controller.wake(key, cause, Priority.BACKGROUND if ends else Priority.URGENT)

    def _unplaced(self, changed: Node | RuntimeClass) -> Collection[Key]:
        """The pods to reconcile when the node or a RuntimeClass changes: those without a node, and those that name a RuntimeClass."""
        return [
            pod.metadata.key
            for pod in self.pods
            if not pod.spec.node_name or (pod.spec.runtime_class_name and not pod.finished)
        ]

    def _pod_of(self, uid: Uid) -> NodePod | None:
        key = self.ledger.key_of(uid)
        pod = self.pods.get(key) if key is not None else None
        return pod if pod is not None and pod.metadata.uid == uid else None

    def _claimed(self, pod: NodePod, claims: tuple[str, ...]) -> None:
        self.ledger.entry(pod.metadata.key, pod.metadata.uid).claims = claims

    async def reconcile(self, key: Key) -> Done:
        view = self.observe(key)
        plan = plan_pod(view, self._options.pace, self._clock.now())
        if view.pod is not None:
            entry = self.ledger.entry(key, view.pod.metadata.uid)
            entry.awaited = plan.holds
            if plan.holds:
                entry.held_since = view.held_since or self._clock.now()
        for step in plan.steps:
            note(step)
            try:
                await self._carry_out(view.pod, step)
            except NodeError as error:
                if not isinstance(step, Start):
                    raise
                return self._start_failed(view, step, error)
        self._remember(key, view, plan)
        return Done(again_at=plan.again_at)

    async def _carry_out(self, pod: NodePod | None, step: Step) -> None:
        match step:
            case Publish(fields) if pod is not None:
                await self._publish(pod, step)
                self._events.published(pod, fields)
            case Delete() if pod is not None:
                await self._delete(pod, step)
            case _:
                if pod is not None and isinstance(step, Start) and self._backend.pod_status(pod.metadata.uid) is None:
                    self._events.placed(pod, self._options.node)
                await self._applier.apply(pod, step)

    async def _publish(self, pod: NodePod, step: Publish) -> None:
        """Writes a status. The resulting cache event does not trigger a reconcile, unless the pod has finished."""
        uid, status = pod.metadata.uid, {**pod.status, **step.fields}
        if status.get("phase") not in ("Succeeded", "Failed"):
            self._triggers.saying[uid] = status
        try:
            await self._applier.apply(pod, step)
        finally:
            self._triggers.saying.pop(uid, None)

    async def _delete(self, pod: NodePod, step: Delete) -> None:
        meta = pod.metadata
        self._triggers.deleting.add(meta.uid)
        try:
            await self._applier.apply(pod, step)
        finally:
            self._triggers.deleting.discard(meta.uid)
        now = self.pods.get(meta.key)
        self._settle(meta.key, now.metadata.uid if now is not None else Uid(""))

    def _settle(self, key: Key, uid: Uid) -> None:
        """Forgets earlier pods of that name that the backend does not have any more."""
        for gone in self.ledger.settle(key, uid, self._backend.pod_status):
            self.prober.forget(gone)
            self.hooks.forget(gone)
            self.content.give_back(gone)

    def observe(self, key: Key) -> PodView:
        pod = self.pods.get(key)
        if pod is not None and pod.spec.node_name not in ("", self._options.node):
            pod = None
        uid = pod.metadata.uid if pod is not None else Uid("")
        look = self._backend.pod_status
        self._settle(key, uid)
        entry = self.ledger.entry(key, uid) if pod is not None else Entry()
        seen = look(uid) if pod is not None else None
        if pod is not None and seen is not entry.seen:
            self._events.moved(pod, entry.seen, seen)
            entry.seen = seen
        if seen is not None and seen.evicted:
            entry.evicted = seen.evicted
        if seen is not None and seen.reclaimed:
            entry.claims = ()
            self.content.give_back(seen.uid)
        return PodView(
            pod,
            seen,
            tuple(seen for other in self.ledger.others(key, uid) if (seen := look(other)) is not None),
            self._node_facts() if seen is None or seen.found else None,  # only needed to place and to start the pod
            self._options.address,
            pod is not None and entry.bound_at == pod.metadata.revision,
            entry.trouble,
            entry.held_since,
            self.prober.follow(pod, seen) if pod is not None else status.NO_PROBES,
            seen is not None and pod is not None and entry.labels != pod.metadata.labels,
            entry.evicted,
            self._backend.revives,
        )

    def _node_facts(self) -> NodeFacts | None:
        node = self.nodes.get(Key("", self._options.node))
        if node is None:
            return None
        runtimes = self._runtimes.known if self._around.offering is not None else None
        pressure = self._around.disk.pressure if self._around.disk is not None else ""
        return NodeFacts(node.metadata.name, node.metadata.labels, node.spec.unschedulable, runtimes, pressure)

    def _remember(self, key: Key, view: PodView, plan: Plan) -> None:
        """Records what the next reconcile needs. By now the pod, and its entry, may be gone."""
        entry = self.ledger.find(key, view.pod.metadata.uid) if view.pod is not None else None
        if view.pod is None or entry is None:
            return
        entry.held_since = (view.held_since or self._clock.now()) if plan.holds else None
        for step in plan.steps:
            if isinstance(step, Bind):
                entry.bound_at = view.pod.metadata.revision
            elif isinstance(step, Start | Relabel):
                entry.labels = view.pod.metadata.labels
        seen = self._backend.pod_status(view.pod.metadata.uid)
        if seen is not None and not seen.found:
            entry.trouble, entry.failures = None, 0

    def _start_failed(self, view: PodView, step: Start, error: NodeError) -> Done:
        """Handles a failed start: the status will say why, and the start is retried with a growing delay."""
        pace, work = self._options.pace, step.workload
        entry = self.ledger.entry(work.key, work.uid)
        longest = pace.longest_lookup if isinstance(error, Unresolved) else pace.longest_retry
        delay = min(longest, pace.first_retry * 2.0 ** min(entry.failures, 32))
        entry.failures += 1
        container = error.container if isinstance(error, Unresolved) else ""
        entry.trouble = Trouble(error.reason, error.message, self._clock.now() + timedelta(seconds=delay), container)
        if view.pod is not None:
            self._events.start_failed(view.pod, error)
        log.warning("pod not started", pod=str(work.key), reason=error.reason, error=error.message, again_in=delay)
        return Done(again_after=0.0)  # to publish it
