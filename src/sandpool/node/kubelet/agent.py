"""The kubelet: observe, plan, apply. One work item is the name of a pod; what is decided about it is in plan.py.

Two things wake a name: a change of its pod, told by the cache, and a change of what runs, told by the backend. What is kept
in memory here can all be lost: it is found again from the API and the backend.
"""

from __future__ import annotations

import asyncio
import random as randomness
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from sandpool.base.clock import Clock
from sandpool.base.errors import NodeError
from sandpool.kube.api import Api
from sandpool.loop.aside import Aside
from sandpool.loop.cache import Cache
from sandpool.loop.controller import Controller, Limits
from sandpool.loop.events import Events, NullEvents
from sandpool.loop.manager import Manager, Parts
from sandpool.loop.outcome import Done
from sandpool.loop.queue import Priority
from sandpool.loop.reflector import Reflector, Scope
from sandpool.loop.writes import Writes
from sandpool.model.core import RuntimeClass
from sandpool.model.kinds import NODES, RUNTIME_CLASSES
from sandpool.model.metadata import Key, Uid
from sandpool.model.pod import Node
from sandpool.node.backend import Backend
from sandpool.node.kubelet import status
from sandpool.node.kubelet.apply import Hands
from sandpool.node.kubelet.bind import NodeFacts
from sandpool.node.kubelet.cache_transforms import Alike
from sandpool.node.kubelet.claims import ClaimFolders, ClaimKeeper
from sandpool.node.kubelet.containers import Trouble
from sandpool.node.kubelet.downward import Here
from sandpool.node.kubelet.event_emitter import Telling
from sandpool.node.kubelet.holding import Holding, total
from sandpool.node.kubelet.ledger import Entry, Ledger
from sandpool.node.kubelet.node import DiskWatch, Heartbeat
from sandpool.node.kubelet.options import KubeletOptions
from sandpool.node.kubelet.plan import Bind, Delete, Plan, PodView, Publish, Relabel, Start, Step, plan_pod
from sandpool.node.kubelet.pods import NODE_PODS, NodePod
from sandpool.node.kubelet.pre_stop import Goodbyes
from sandpool.node.kubelet.probe_runner import Asking
from sandpool.node.kubelet.prober import Prober
from sandpool.node.kubelet.references import Unresolved
from sandpool.node.kubelet.refreshing import Refresher
from sandpool.node.kubelet.runtimes import Offering, RuntimeClasses
from sandpool.node.kubelet.waking import Waking
from sandpool.telemetry.log import logger
from sandpool.telemetry.metrics import Metrics
from sandpool.telemetry.reconcile_history import Story, note

log = logger(__name__)


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a kubelet has beside the API and its backend. Without `offering` a pod may name any runtime class."""

    events: Events = field(default_factory=NullEvents)
    offering: Offering | None = None
    folders: ClaimFolders | None = None
    disk: DiskWatch | None = None


class Kubelet:
    """Runs the pods of one node until it is cancelled. It opens the backend and closes it."""

    def __init__(
        self,
        api: Api,
        backend: Backend,
        clock: Clock,
        options: KubeletOptions = KubeletOptions(),
        around: Surroundings = Surroundings(),
        *,
        metrics: Metrics | None = None,
        story: Story | None = None,
        random: Callable[[], float] = randomness.random,
    ) -> None:
        metrics = Metrics() if metrics is None else metrics
        story = Story() if story is None else story
        self._backend = backend
        self._clock = clock
        self._options = options
        self._around = around
        self.pods: Cache[NodePod] = Cache(NODE_PODS, self._holds, keep=Alike())
        self.nodes: Cache[Node] = Cache(NODES, lambda node: node.metadata.name == options.node)
        self.classes: Cache[RuntimeClass] = Cache(RUNTIME_CLASSES)
        writes = Writes(api, (self.pods, self.nodes, self.classes))
        self._ledger = Ledger()
        self._waking = Waking(self.pods, backend, self._ledger, options.node, self._wake)
        self._telling = Telling(around.events, self._pod_of, options.pace, routine=options.routine_events)
        asking = Asking(backend, clock)
        self._prober = Prober(asking.ask, clock, self._waking.changed, self._telling.probed)
        self._goodbyes = Goodbyes(asking.ask, clock, self._waking.changed, self._telling.hook_failed)
        self._here = Here(options.node, options.address, options.capacity)
        self._aside = Aside()
        self._holding = Holding(total(options.capacity) if options.content is None else options.content)
        if options.looks_up:
            metrics.shares["content_bytes"] = self._holding.shares
        self._hands = Hands(
            writes,
            backend,
            self._here,
            self._goodbyes,
            self._claimed,
            self._telling.doubted,
            aside=self._aside,
            holding=self._holding,
            looks_up=options.looks_up,
        )
        self._runtimes = RuntimeClasses(writes, self.classes, clock, options.pace.renew)
        limits = Limits(workers=options.workers, longest_delay=60.0)
        self.controller: Controller[Key] = Controller("kubelet", self.reconcile, clock, metrics, story, limits)
        self._manager = Manager(self._parts(writes, clock, metrics, random))

    def _parts(self, writes: Writes, clock: Clock, metrics: Metrics, random: Callable[[], float]) -> Parts:
        options = self._options
        self.pods.subscribe(self._waking.stepped)
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
            writes, self._backend, self.pods, self._here, clock, options.pace.refresh, self._aside, self._holding
        )
        services = [heartbeat.run, self._prober.run, self._goodbyes.run, refresher.run]
        if self._around.offering is not None:
            self.controller.on(self.classes, self._unplaced, reduce=lambda one: one.handler)
            reflectors.append(Reflector(writes, self.classes, clock, metrics, random))
            services.append(self._runtimes.run)
        else:
            self._runtimes.set({})
        if self._around.folders is not None:
            keeper = ClaimKeeper(writes, self._around.folders, self._ledger.claims, clock, options.pace.tidy)
            services.append(keeper.run)
        return Parts(reflectors=reflectors, controllers=(self.controller,), services=services, prepare=self._open)

    @property
    def ready(self) -> asyncio.Event:
        """Set while pods are being looked after."""
        return self._manager.ready

    async def run(self) -> None:
        try:
            await self._manager.run(asyncio.Event())
        finally:
            await self._backend.close()

    async def _open(self) -> None:
        """After the caches are filled: what the backend still has of pods that are gone is found here."""
        if self._around.offering is not None:
            self._runtimes.set(await self._around.offering())
            # Before anybody is told that it is ready: a pod that names a class is refused without it.
            await self._runtimes.put_right()
        await self._backend.open(self._waking.moved)
        for seen in self._backend.running():
            self._ledger.entry(seen.key, seen.uid)
            self.controller.wake(seen.key, "found")

    @property
    def _runtime(self) -> str:
        return self._options.runtime or f"{self._backend.name}://1"

    def _holds(self, pod: NodePod) -> bool:
        return self._options.places or pod.spec.node_name == self._options.node

    def _wake(self, key: Key, cause: str) -> None:
        """Somebody waits for pods that start, and nobody for those that end: thousands that are released together do not hold up the first of
        their successors."""
        pod = self.pods.get(key)
        ends = pod is None or pod.metadata.leaving
        self.controller.wake(key, cause, Priority.SECOND if ends else Priority.FIRST)

    def _unplaced(self, changed: Node | RuntimeClass) -> Iterator[Key]:
        """Pods without a node may now fit, and those that have one may now find their runtime."""
        return (
            pod.metadata.key
            for pod in self.pods
            if not pod.spec.node_name or (pod.spec.runtime_class_name and not pod.finished)
        )

    def _pod_of(self, uid: Uid) -> NodePod | None:
        key = self._ledger.key_of(uid)
        pod = self.pods.get(key) if key is not None else None
        return pod if pod is not None and pod.metadata.uid == uid else None

    def _claimed(self, pod: NodePod, claims: tuple[str, ...]) -> None:
        self._ledger.entry(pod.metadata.key, pod.metadata.uid).claims = claims

    async def reconcile(self, key: Key) -> Done:
        view = self.observe(key)
        plan = plan_pod(view, self._options.pace, self._clock.now())
        if view.pod is not None:
            entry = self._ledger.entry(key, view.pod.metadata.uid)
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
                return self._stumble(view, step, error)
        self._remember(key, view, plan)
        return Done(again_at=plan.again_at)

    async def _carry_out(self, pod: NodePod | None, step: Step) -> None:
        match step:
            case Publish(fields) if pod is not None:
                await self._publish(pod, step)
                self._telling.published(pod, fields)
            case Delete() if pod is not None:
                await self._delete(pod, step)
            case _:
                if pod is not None and isinstance(step, Start):
                    self._telling.placed(pod, self._options.node)
                await self._hands.apply(pod, step)

    async def _publish(self, pod: NodePod, step: Publish) -> None:
        """A pod that says what we have just made it say need not be looked at again, unless it is over."""
        uid, status = pod.metadata.uid, {**pod.status, **step.fields}
        if status.get("phase") not in ("Succeeded", "Failed"):
            self._waking.saying[uid] = status
        try:
            await self._hands.apply(pod, step)
        finally:
            self._waking.saying.pop(uid, None)

    async def _delete(self, pod: NodePod, step: Delete) -> None:
        meta = pod.metadata
        self._waking.deleting.add(meta.uid)
        try:
            await self._hands.apply(pod, step)
        finally:
            self._waking.deleting.discard(meta.uid)
        now = self.pods.get(meta.key)
        self._settle(meta.key, now.metadata.uid if now is not None else Uid(""))

    def _settle(self, key: Key, uid: Uid) -> None:
        """Forgets the pods of that name of which nothing is left, the one that has it now excepted."""
        for gone in self._ledger.settle(key, uid, self._backend.look):
            self._prober.forget(gone)
            self._goodbyes.forget(gone)
            self._holding.give_back(gone)

    def observe(self, key: Key) -> PodView:
        pod = self.pods.get(key)
        if pod is not None and pod.spec.node_name not in ("", self._options.node):
            pod = None
        uid = pod.metadata.uid if pod is not None else Uid("")
        look = self._backend.look
        self._settle(key, uid)
        entry = self._ledger.entry(key, uid) if pod is not None else Entry()
        seen = look(uid) if pod is not None else None
        if pod is not None and seen is not entry.seen:
            self._telling.moved(pod, entry.seen, seen)
            entry.seen = seen
        if seen is not None and seen.evicted:
            entry.evicted = seen.evicted
        if seen is not None and seen.reclaimed:
            entry.claims = ()
            self._holding.give_back(seen.uid)
        return PodView(
            pod,
            seen,
            tuple(seen for other in self._ledger.others(key, uid) if (seen := look(other)) is not None),
            self._node_facts() if seen is None else None,  # it is placed then
            self._options.address,
            pod is not None and entry.bound_at == pod.metadata.revision,
            entry.trouble,
            entry.held_since,
            self._prober.follow(pod, seen) if pod is not None else status.NO_PROBES,
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
        """What the next look at this pod must know. The pod may be gone by now, and its entry with it."""
        entry = self._ledger.find(key, view.pod.metadata.uid) if view.pod is not None else None
        if view.pod is None or entry is None:
            return
        entry.held_since = (view.held_since or self._clock.now()) if plan.holds else None
        for step in plan.steps:
            if isinstance(step, Bind):
                entry.bound_at = view.pod.metadata.revision
            elif isinstance(step, Start | Relabel):
                entry.labels = view.pod.metadata.labels
        if self._backend.look(view.pod.metadata.uid) is not None:
            entry.trouble, entry.failures = None, 0

    def _stumble(self, view: PodView, step: Start, error: NodeError) -> Done:
        """The pod cannot be started: its status will say why, and it is tried again, later each time."""
        pace, work = self._options.pace, step.workload
        entry = self._ledger.entry(work.key, work.uid)
        longest = pace.longest_lookup if isinstance(error, Unresolved) else pace.longest_retry
        delay = min(longest, pace.first_retry * 2.0 ** min(entry.failures, 32))
        entry.failures += 1
        container = error.container if isinstance(error, Unresolved) else ""
        entry.trouble = Trouble(error.reason, error.message, self._clock.now() + timedelta(seconds=delay), container)
        if view.pod is not None:
            self._telling.stumbled(view.pod, error)
        log.warning("pod not started", pod=str(work.key), reason=error.reason, error=error.message, again_in=delay)
        return Done(again_after=0.0)  # to publish it
