"""Builds the four controllers on one Api: their caches, their shared state, and the parts that a manager runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from sandpool.base.clock import Clock
from sandpool.controllers import cache_transforms
from sandpool.controllers.assigner.assigner import Assigner
from sandpool.controllers.assigner.facts import Woken
from sandpool.controllers.assigner.staleness import Staleness
from sandpool.controllers.cache_transforms import SandboxTransform
from sandpool.controllers.claim.controller import Caches as ClaimCaches
from sandpool.controllers.claim.controller import ClaimController
from sandpool.controllers.claim.options import Options as ClaimOptions
from sandpool.controllers.metrics.controller_metrics import ControllerMetrics
from sandpool.controllers.metrics.traces import in_context
from sandpool.controllers.pool.controller import Caches as PoolCaches
from sandpool.controllers.pool.controller import PoolController
from sandpool.controllers.pool.options import Options as PoolOptions
from sandpool.controllers.refused_status import RefusedStatus
from sandpool.controllers.sandbox.controller import SandboxController
from sandpool.controllers.sandbox.observe import Caches as SandboxCaches
from sandpool.controllers.sandbox.options import Options as SandboxOptions
from sandpool.controllers.template.controller import Caches as TemplateCaches
from sandpool.controllers.template.controller import TemplateController
from sandpool.controllers.template.policy import Options as PolicyOptions
from sandpool.kube.api import Api
from sandpool.kube.inline import InlineHooks
from sandpool.kube.interceptors import Gated, Traced
from sandpool.kube.priority import UrgentWork
from sandpool.kube.priority_gate import PriorityGate
from sandpool.loop.cache import Cache
from sandpool.loop.controller import Controller, Limits
from sandpool.loop.events import Events, NullEvents
from sandpool.loop.lease import Elector
from sandpool.loop.manager import Parts
from sandpool.loop.outage import Outage
from sandpool.loop.reflector import Reflector
from sandpool.loop.writes import Writes
from sandpool.model import kinds
from sandpool.model.claim import SandboxClaim
from sandpool.model.container_defaults import STANDARD, ContainerDefaults
from sandpool.model.core import NetworkPolicy, PersistentVolumeClaim, Service
from sandpool.model.metadata import Key
from sandpool.model.pod import Node, Pod
from sandpool.model.pool import SandboxWarmPool
from sandpool.model.resource import Resource
from sandpool.model.sandbox import Sandbox
from sandpool.model.template import SandboxTemplate
from sandpool.telemetry.metrics import Metrics
from sandpool.telemetry.reconcile_history import ReconcileHistory
from sandpool.telemetry.trace import NullTracer, Tracer


@dataclass(frozen=True, slots=True)
class Workers:
    """How many keys of each kind are reconciled at once. A worker that waits for a server costs next to nothing."""

    claim: int = 100
    sandbox: int = 50
    pool: int = 8
    template: int = 1


@dataclass(frozen=True, slots=True)
class ControllerOptions:
    sandbox: SandboxOptions = field(default_factory=SandboxOptions)
    policy: PolicyOptions = field(default_factory=PolicyOptions)
    pool: PoolOptions = field(default_factory=PoolOptions)
    claim: ClaimOptions = field(default_factory=ClaimOptions)
    workers: Workers = field(default_factory=Workers)
    defaults: ContainerDefaults = STANDARD  # for containers of sandboxes made from templates
    claim_events: bool = True  # whether the claim controller emits Events, too
    tracked_only: bool = False  # list and watch only pods and Services of sandboxes


@dataclass(frozen=True, slots=True)
class Observability:
    """Where the controllers record what they do."""

    metrics: Metrics = field(default_factory=Metrics)
    history: ReconcileHistory = field(default_factory=ReconcileHistory)
    events: Events = field(default_factory=NullEvents)
    tracer: Tracer = field(default_factory=NullTracer)
    outage: Outage | None = None  # None: one is created and shared


@dataclass(frozen=True, slots=True)
class Caches:
    """The caches of all controllers. Claims are listed before sandboxes, so that a cached claim's sandbox is cached, too."""

    claims: Cache[SandboxClaim] = field(default_factory=lambda: Cache(kinds.CLAIMS))
    sandboxes: Cache[Sandbox] = field(default_factory=lambda: Cache(kinds.SANDBOXES, keep=SandboxTransform()))
    pools: Cache[SandboxWarmPool] = field(default_factory=lambda: Cache(kinds.POOLS))
    templates: Cache[SandboxTemplate] = field(default_factory=lambda: Cache(kinds.TEMPLATES))
    policies: Cache[NetworkPolicy] = field(default_factory=lambda: Cache(kinds.NETWORK_POLICIES))
    pods: Cache[Pod] = field(default_factory=lambda: Cache(kinds.PODS, keep=cache_transforms.PodTransform()))
    services: Cache[Service] = field(default_factory=lambda: Cache(kinds.SERVICES))
    volume_claims: Cache[PersistentVolumeClaim] = field(default_factory=lambda: Cache(kinds.PERSISTENT_VOLUME_CLAIMS))
    nodes: Cache[Node] = field(default_factory=lambda: Cache(kinds.NODES))

    @classmethod
    def of_tracked(cls) -> Caches:
        """Caches that hold only pods and Services with our label."""
        return cls(
            pods=Cache(kinds.PODS, cache_transforms.tracked, cache_transforms.PodTransform()),
            services=Cache(kinds.SERVICES, cache_transforms.tracked),
        )

    def all(self) -> tuple[Cache[Any], ...]:
        return (
            self.claims,
            self.sandboxes,
            self.pools,
            self.templates,
            self.policies,
            self.pods,
            self.services,
            self.volume_claims,
            self.nodes,
        )


@dataclass(frozen=True, slots=True)
class Controllers:
    caches: Caches
    assigner: Assigner
    sandbox: SandboxController
    template: TemplateController
    pool: PoolController
    claim: ClaimController
    reflectors: tuple[Reflector[Any], ...]
    urgent: UrgentWork  # whether urgent work is left
    namespace: str = ""

    def parts(self, elector: Elector | None = None) -> Parts:
        """The parts for a manager. Claims go first: users wait for them."""
        return Parts(
            reflectors=self.reflectors,
            controllers=(self.claim.loop, self.sandbox.loop, self.pool.loop, self.template.loop),
            elector=elector,
            services=(self.claim.audit_forever, self.claim.first_ready.run),
            prepare=partial(self.claim.prepare, self.namespace),
        )


def assemble(
    api: Api,
    clock: Clock,
    random: Callable[[], float],
    observability: Observability,
    options: ControllerOptions = ControllerOptions(),
    *,
    namespace: str = "",
    gate: PriorityGate | None = None,
    lanes: PriorityGate | None = None,
    leading: Callable[[], bool] = lambda: True,
    hooks: InlineHooks | None = None,
) -> Controllers:
    """Builds the controllers. `random` names members and spreads retries; seed it to repeat a run. With a `namespace` they see only that one.
    `gate` is a priority gate for an Api without one; `lanes` is the gate that the Api already has. `leading` returns whether this process is
    the leader: only the leader counts metrics. `hooks` are those of an API server in this process, where claims are bound inline."""
    caches = Caches.of_tracked() if options.tracked_only else Caches()
    prompt = options.pool.refill_rate <= 0 and options.pool.replenish_delay <= 0
    assigner = Assigner(clock.monotonic, prompt=prompt)
    tracer = in_context(observability.tracer, caches.claims, caches.sandboxes, caches.pools, caches.templates)
    observability = replace(observability, tracer=tracer)
    controller_metrics = ControllerMetrics(
        caches.claims, caches.sandboxes, caches.pools, assigner, clock, observability.metrics, leading=leading
    )
    traced = Traced(api, tracer)
    writes = Writes(Gated(traced, gate) if gate is not None else traced, caches.all())
    writes.refused = _refused_status(caches, clock, observability, options).refused
    factory = _ControllerFactory(writes, caches, assigner, clock, observability, options)
    urgent = UrgentWork()
    claim = factory.claim(urgent, controller_metrics)
    pool, sandbox, template = factory.pool(random, claim.wake), factory.sandbox(), factory.template()
    for loop in (pool.loop, sandbox.loop, template.loop):
        loop.share(urgent)
    _expedite_refill(assigner, (pool.loop, sandbox.loop), gate or lanes)
    if hooks is not None:
        hooks.register(kinds.CLAIMS, claim.inline)
    tracked = (caches.pods, caches.services) if options.tracked_only else ()
    reflectors = tuple(
        Reflector(
            api,
            cache,
            clock,
            observability.metrics,
            random,
            cache_transforms.scope(cache, namespace, tracked=cache in tracked),
        )
        for cache in caches.all()
    )
    outage = observability.outage or Outage(clock.monotonic)
    for loop in (claim.loop, pool.loop, sandbox.loop, template.loop):
        loop.outage = outage
    for reflector in reflectors:
        reflector.outage = outage
    return Controllers(caches, assigner, sandbox, template, pool, claim, reflectors, urgent, namespace)


def _refused_status(
    caches: Caches, clock: Clock, observability: Observability, options: ControllerOptions
) -> RefusedStatus:
    events: dict[Resource[Any], Events] = {
        kinds.SANDBOXES: observability.events,
        kinds.POOLS: observability.events,
        kinds.CLAIMS: observability.events if options.claim_events else NullEvents(),
    }
    return RefusedStatus(caches.all(), events, clock, observability.metrics)


def _expedite_refill(assigner: Assigner, refill: Sequence[Controller[Key]], gate: PriorityGate | None) -> None:
    """While claims wait for members, the background work that creates members does not wait for urgent work."""

    def pressed() -> bool:
        return assigner.pressed

    def recheck() -> None:
        for loop in refill:
            loop.queue.recheck()
        if gate is not None:
            gate.recheck()

    for loop in refill:
        loop.queue.expedite_background_while(pressed)
    if gate is not None:
        gate.expedite_background_while(pressed)
    assigner.on_pressed = recheck


class _ControllerFactory:
    """Creates the controllers from their shared state. The claim controller must come first, because it feeds the assigner."""

    def __init__(
        self,
        writes: Writes,
        caches: Caches,
        assigner: Assigner,
        clock: Clock,
        observability: Observability,
        options: ControllerOptions,
    ) -> None:
        self._writes, self._caches, self._assigner, self._options = writes, caches, assigner, options
        self._staleness = Staleness(caches.pools, caches.templates, options.defaults)
        self._loop_arguments = (clock, observability.metrics, observability.history)
        self._events, self._tracer = observability.events, observability.tracer

    def claim(self, urgent: UrgentWork, controller_metrics: ControllerMetrics) -> ClaimController:
        caches = self._caches
        return ClaimController(
            self._writes,
            ClaimCaches(caches.claims, caches.sandboxes, caches.pools, caches.templates, caches.policies, caches.nodes),
            self._assigner,
            self._staleness,
            *self._loop_arguments,
            options=self._options.claim,
            limits=Limits(workers=self._options.workers.claim),
            events=self._events if self._options.claim_events else NullEvents(),
            tracer=self._tracer,
            urgent=urgent,
            times=controller_metrics.times,
            started_cold=controller_metrics.started_cold,
        )

    def pool(self, random: Callable[[], float], wake_claims: Callable[[Woken], object]) -> PoolController:
        caches = self._caches
        return PoolController(
            self._writes,
            PoolCaches(caches.pools, caches.sandboxes, caches.templates, caches.policies),
            self._assigner,
            self._staleness,
            random,
            *self._loop_arguments,
            wake_claims=wake_claims,
            options=self._options.pool,
            limits=Limits(workers=self._options.workers.pool),
            events=self._events,
            tracer=self._tracer,
        )

    def sandbox(self) -> SandboxController:
        caches = self._caches
        assigner = self._assigner
        return SandboxController(
            self._writes,
            SandboxCaches(
                caches.sandboxes, caches.pods, caches.services, caches.volume_claims, caches.pools, caches.claims
            ),
            *self._loop_arguments,
            options=self._options.sandbox,
            limits=Limits(workers=self._options.workers.sandbox),
            events=self._events,
            tracer=self._tracer,
            pressed=lambda: assigner.pressed,
        )

    def template(self) -> TemplateController:
        caches = self._caches
        return TemplateController(
            self._writes,
            TemplateCaches(caches.templates, caches.policies, caches.sandboxes, caches.pods),
            *self._loop_arguments,
            options=self._options.policy,
            limits=Limits(workers=self._options.workers.template),
            events=self._events,
            tracer=self._tracer,
        )
