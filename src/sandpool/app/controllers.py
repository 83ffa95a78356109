"""The four controllers, put together on one Api: caches, what they share, and the parts for a manager to run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from sandpool.base.clock import Clock
from sandpool.controllers import watched as followed
from sandpool.controllers.assigner.assigner import Assigner
from sandpool.controllers.assigner.facts import Woken
from sandpool.controllers.assigner.staleness import Staleness
from sandpool.controllers.cache_transforms import Alike
from sandpool.controllers.claim.controller import Caches as ClaimCaches
from sandpool.controllers.claim.controller import ClaimController
from sandpool.controllers.claim.options import Options as ClaimOptions
from sandpool.controllers.metrics.metrics import Measures
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
from sandpool.kube.lanes import LaneGate
from sandpool.kube.traced import Narrated
from sandpool.loop.cache import Cache
from sandpool.loop.controller import Controller, Limits
from sandpool.loop.events import Events, NullEvents
from sandpool.loop.lease import Elector
from sandpool.loop.manager import Parts
from sandpool.loop.outage import Outage
from sandpool.loop.reflector import Reflector
from sandpool.loop.rush import Rush
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
from sandpool.telemetry.reconcile_history import Story
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
    defaults: ContainerDefaults = STANDARD  # of containers in what templates make
    claim_events: bool = True  # whether the claim controller writes Events, where the others do
    tracked_only: bool = False  # ask the server for pods and Services of sandboxes only, not for all


@dataclass(frozen=True, slots=True)
class Telling:
    """Where the controllers say what they do."""

    metrics: Metrics = field(default_factory=Metrics)
    story: Story = field(default_factory=Story)
    events: Events = field(default_factory=NullEvents)
    tracer: Tracer = field(default_factory=NullTracer)
    outage: Outage | None = None  # None: those who are made together share one


@dataclass(frozen=True, slots=True)
class Caches:
    """What the controllers know of the cluster. Claims are listed before sandboxes: whoever shows a claim shows its sandbox."""

    claims: Cache[SandboxClaim] = field(default_factory=lambda: Cache(kinds.CLAIMS))
    sandboxes: Cache[Sandbox] = field(default_factory=lambda: Cache(kinds.SANDBOXES, keep=Alike()))
    pools: Cache[SandboxWarmPool] = field(default_factory=lambda: Cache(kinds.POOLS))
    templates: Cache[SandboxTemplate] = field(default_factory=lambda: Cache(kinds.TEMPLATES))
    policies: Cache[NetworkPolicy] = field(default_factory=lambda: Cache(kinds.NETWORK_POLICIES))
    pods: Cache[Pod] = field(default_factory=lambda: Cache(kinds.PODS, keep=followed.Remembered()))
    services: Cache[Service] = field(default_factory=lambda: Cache(kinds.SERVICES))
    volume_claims: Cache[PersistentVolumeClaim] = field(default_factory=lambda: Cache(kinds.PERSISTENT_VOLUME_CLAIMS))
    nodes: Cache[Node] = field(default_factory=lambda: Cache(kinds.NODES))

    @classmethod
    def of_tracked(cls) -> Caches:
        """Of pods and Services only those that a label marks as a sandbox's."""
        return cls(
            pods=Cache(kinds.PODS, followed.tracked, followed.Remembered()),
            services=Cache(kinds.SERVICES, followed.tracked),
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
    rush: Rush  # whether anybody waits for something
    namespace: str = ""

    def parts(self, elector: Elector | None = None) -> Parts:
        """For a manager. Claims go first: they are what somebody waits for."""
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
    telling: Telling,
    options: ControllerOptions = ControllerOptions(),
    *,
    namespace: str = "",
    gate: LaneGate | None = None,
    lanes: LaneGate | None = None,
    leading: Callable[[], bool] = lambda: True,
) -> Controllers:
    """`random` makes the names of members and spreads retries; give it a seed and the same run repeats. With a `namespace`
    they see that one only. `gate` is for an Api that has none of its own, `lanes` is its own; `leading` says whether this process is the one
    that acts, and so the one that counts."""
    caches = Caches.of_tracked() if options.tracked_only else Caches()
    prompt = options.pool.refill_rate <= 0 and options.pool.replenish_delay <= 0
    assigner = Assigner(clock.monotonic, prompt=prompt)
    tracer = in_context(telling.tracer, caches.claims, caches.sandboxes, caches.pools, caches.templates)
    telling = replace(telling, tracer=tracer)
    measures = Measures(
        caches.claims, caches.sandboxes, caches.pools, assigner, clock, telling.metrics, leading=leading
    )
    writes = Writes(Narrated(api, tracer), caches.all(), gate)
    writes.refused = _refused_status(caches, clock, telling, options).refused
    workshop = _Workshop(writes, caches, assigner, clock, telling, options)
    claim = workshop.claim()
    pool, sandbox, template = workshop.pool(random, claim.wake), workshop.sandbox(), workshop.template()
    rush = Rush()
    for shares in (claim, pool.loop, sandbox.loop, template.loop):
        shares.share(rush)
    _keep_its_share(assigner, (pool.loop, sandbox.loop), gate or lanes)
    claim.outright.times = measures.times
    claim.tell_cold(measures.started_cold)
    tracked = (caches.pods, caches.services) if options.tracked_only else ()
    reflectors = tuple(
        Reflector(
            api, cache, clock, telling.metrics, random, followed.scope(cache, namespace, tracked=cache in tracked)
        )
        for cache in caches.all()
    )
    outage = telling.outage or Outage(clock.monotonic)
    for loop in (claim.loop, pool.loop, sandbox.loop, template.loop):
        loop.outage = outage
    for reflector in reflectors:
        reflector.outage = outage
    return Controllers(caches, assigner, sandbox, template, pool, claim, reflectors, rush, namespace)


def _refused_status(caches: Caches, clock: Clock, telling: Telling, options: ControllerOptions) -> RefusedStatus:
    events: dict[Resource[Any], Events] = {
        kinds.SANDBOXES: telling.events,
        kinds.POOLS: telling.events,
        kinds.CLAIMS: telling.events if options.claim_events else NullEvents(),
    }
    return RefusedStatus(caches.all(), events, clock, telling.metrics)


def _keep_its_share(assigner: Assigner, refill: Sequence[Controller[Key]], gate: LaneGate | None) -> None:
    """While claims wait for members, to make these is what they wait for: it does not rest while others are served."""

    def hurried() -> bool:
        return assigner.pressed

    def look() -> None:
        for loop in refill:
            loop.queue.look()
        if gate is not None:
            gate.look()

    for loop in refill:
        loop.queue.hurry(hurried)
    if gate is not None:
        gate.hurry(hurried)
    assigner.hungry = look


class _Workshop:
    """What the controllers share, and how each is made from it. The claim's comes first: it feeds the assigner."""

    def __init__(
        self,
        writes: Writes,
        caches: Caches,
        assigner: Assigner,
        clock: Clock,
        telling: Telling,
        options: ControllerOptions,
    ) -> None:
        self._writes, self._caches, self._assigner, self._options = writes, caches, assigner, options
        self._staleness = Staleness(caches.pools, caches.templates, options.defaults)
        self._said = (clock, telling.metrics, telling.story)
        self._events, self._tracer = telling.events, telling.tracer

    def claim(self) -> ClaimController:
        caches = self._caches
        return ClaimController(
            self._writes,
            ClaimCaches(caches.claims, caches.sandboxes, caches.pools, caches.templates, caches.policies, caches.nodes),
            self._assigner,
            self._staleness,
            *self._said,
            options=self._options.claim,
            limits=Limits(workers=self._options.workers.claim),
            events=self._events if self._options.claim_events else NullEvents(),
            tracer=self._tracer,
        )

    def pool(self, random: Callable[[], float], wake_claims: Callable[[Woken], object]) -> PoolController:
        caches = self._caches
        return PoolController(
            self._writes,
            PoolCaches(caches.pools, caches.sandboxes, caches.templates, caches.policies),
            self._assigner,
            self._staleness,
            random,
            *self._said,
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
            *self._said,
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
            *self._said,
            options=self._options.policy,
            limits=Limits(workers=self._options.workers.template),
            events=self._events,
            tracer=self._tracer,
        )
