"""The process of `sandpool controller`: the controllers on a Kubernetes cluster, with leader election among replicas.

It starts the pages first (so that probes are answered), then runs the preflight, fills the caches, takes the lease and starts the
controllers. It stops in reverse: controllers finish queued work, the lease is released, pending Events are written.
The lease uses separate connections, so that no burst of writes delays a renewal.
"""

from __future__ import annotations

import asyncio
import os
import platform
import random
import signal
import ssl
import uuid
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from types import MappingProxyType
from typing import Any

from sandpool.app.controllers import ControllerOptions, Controllers, Observability, assemble
from sandpool.app.server_tls import ServerTls, certified
from sandpool.base.clock import Clock, SystemClock
from sandpool.base.interpreter import collect_quietly, settle_interpreter
from sandpool.controllers.old_references import warn_of_old_references
from sandpool.install.preflight import Preflight
from sandpool.install.rules import LEASE
from sandpool.kube.api import Api
from sandpool.kube.config import Config
from sandpool.kube.http import HttpApi, connect
from sandpool.kube.kubeconfig import load_config
from sandpool.kube.pacing import Bounds, Pacer
from sandpool.kube.priority import Priority, priority_of_write
from sandpool.kube.priority_gate import PriorityGate, gate_metrics
from sandpool.kube.retry import RetryPolicy
from sandpool.kube.transport import Limits
from sandpool.loop.events import EventRecorder
from sandpool.loop.health import Health
from sandpool.loop.lease import Elector, Terms
from sandpool.loop.lifetimes import beside, ungrouped
from sandpool.loop.manager import Deadlines, Manager, Parts
from sandpool.loop.outage import Outage
from sandpool.loop.reflector import Reflector
from sandpool.model.kinds import SANDBOXES
from sandpool.telemetry.log import logger
from sandpool.telemetry.metrics import CONTENT_TYPE, Metrics, exposed
from sandpool.telemetry.pages import Address, Handler, Page, Pages, history_pages
from sandpool.telemetry.profiles import profile_pages
from sandpool.telemetry.reconcile_history import ReconcileHistory
from sandpool.telemetry.trace import NullTracer, Tracer


@dataclass(frozen=True, slots=True)
class Scoped:
    """The controllers of all watched namespaces, for one manager."""

    parts: Parts
    metrics: tuple[Metrics, ...]
    calm: Callable[[], bool]  # no urgent work is left


def scoped(
    namespaces: Sequence[str],
    api: Api,
    clock: Clock,
    random: Callable[[], float],
    observability: Observability,
    options: ControllerOptions,
    elector: Elector | None,
    *,
    extensions: bool = True,
    lanes: PriorityGate | None = None,
) -> Scoped:
    """Builds the controllers for these namespaces; for all, if none is given. Without `extensions`, only Sandboxes are reconciled. `lanes` is the
    priority gate of the Api."""
    scoped_observability = [replace(observability, metrics=Metrics()) for _ in namespaces] or [observability]
    sets = [
        assemble(api, clock, random, one, options, namespace=namespace, lanes=lanes)
        for namespace, one in zip(namespaces or ("",), scoped_observability, strict=True)
    ]
    each = [_parts(one, extensions) for one in sets]

    async def prepare() -> None:
        for parts in each:
            if parts.prepare is not None:
                await parts.prepare()
            warn_of_old_references(reflector.cache for reflector in parts.reflectors)

    parts = Parts(
        reflectors=tuple(chain.from_iterable(parts.reflectors for parts in each)),
        controllers=tuple(chain.from_iterable(parts.controllers for parts in each)),
        services=tuple(chain.from_iterable(parts.services for parts in each)),
        elector=elector,
        prepare=prepare,
    )
    own = [observability.metrics] if namespaces else []
    return Scoped(
        parts, (*own, *(one.metrics for one in scoped_observability)), lambda: all(one.urgent.idle for one in sets)
    )


def _parts(made: Controllers, extensions: bool) -> Parts:
    if extensions:
        return made.parts()
    # The CustomResourceDefinitions of the other kinds may be missing, so those are not listed.
    return Parts(
        reflectors=tuple(reflector for reflector in made.reflectors if _of_sandboxes(reflector)),
        controllers=(made.sandbox.loop,),
    )


def _of_sandboxes(reflector: Reflector[Any]) -> bool:
    resource = reflector.cache.resource
    return resource == SANDBOXES or (resource.group == "" and resource.namespaced)


log = logger(__name__)

COMPONENT = "sandpool-controller"
"""The reporting component of Events."""
DRAINED = 20.0
"""Seconds for reconciles in progress at shutdown. The rest of Kubernetes' 30 is for the lease and the Events."""
RELEASED = 0.25
"""Seconds that Kubernetes' garbage collector has to delete what a claim released; then we delete it. An idle collector takes a few
hundredths of a second, so nothing is deleted twice. When many claims are released at once, it would take half a minute or more."""
FLUSH_TIMEOUT = 2.0
"""Seconds to write pending Events at shutdown."""
REFUSED = 45.0
"""Seconds for which a throttled write (429) keeps its place in the queue. This is less than the time limit of a reconcile
(loop/controller.py), because a reconcile that fails starts again at the end of the queue."""


@dataclass(frozen=True, slots=True)
class Rate:
    """Upper bounds for requests to the API server. Within them, the server's responses set the pace (kube/pacing.py)."""

    qps: float = 0.0  # 0 or less: no limit
    burst: int = 10
    in_flight: int = 50  # concurrent writes

    @property
    def connections(self) -> int:
        """Maximum number of connections: reads must not wait for writes. Watches have connections of their own."""
        return 2 * self.in_flight


@dataclass(frozen=True, slots=True)
class ManagerOptions:
    kubeconfig: Path | None = None
    context: str = ""
    namespaces: tuple[str, ...] = ()  # empty: all of them
    extensions: bool = True  # also claims, pools and templates
    elect: bool = True
    lease_namespace: str = ""  # empty: our own namespace
    terms: Terms = field(default_factory=Terms)
    rate: Rate = field(default_factory=Rate)
    events: bool = True
    metrics_at: Address | None = None  # None: not served
    metrics_tls: ServerTls | None = None  # None: plain HTTP
    health_at: Address | None = None
    debug_at: Address | None = None
    stories_at: Address | None = None
    router_namespace: str = ""  # empty: our own namespace, if we run in a pod
    controllers: ControllerOptions = field(default_factory=ControllerOptions)


@dataclass(frozen=True, slots=True)
class Apis:
    """Two clients of one server: `work` for the controllers, `brief` for the lease and other requests that must be quick."""

    work: HttpApi
    brief: HttpApi


async def serve(
    options: ManagerOptions,
    config: Config,
    stop: asyncio.Event,
    env: Mapping[str, str] = MappingProxyType({}),
    tracer: Tracer = NullTracer(),
    filled: Callable[[], object] = lambda: None,
) -> None:
    """Runs until `stop`. If any part fails, everything stops with its error. `env` is the environment of credential plugins. `filled` is called
    once, when all caches are filled."""
    clock = SystemClock()
    outage = Outage(clock.monotonic)
    observability = Observability(tracer=tracer, outage=outage)
    observability.metrics.show_process()
    async with _summed_up(outage), connected(config, options, clock, observability.metrics, env) as apis:
        elector = new_elector(options, config, apis, clock, observability.metrics)
        recorder = _recorder(apis.work, clock, observability.metrics) if options.events else None
        if recorder is not None:
            observability = replace(observability, events=recorder)
        made = scoped(
            options.namespaces,
            apis.work,
            clock,
            random.random,
            observability,
            controller_options(options, config),
            elector,
            extensions=options.extensions,
            lanes=apis.work.gate,
        )
        health = Health(made.parts.reflectors, elector, clock.monotonic)
        async with _pages(options, made.metrics, health, observability.history, clock):
            lease_namespace = _lease_namespace(options, config) if elector is not None else ""
            preflight = Preflight(apis.brief, config)
            await preflight.check(options.namespaces, lease_namespace, clock.now(), extensions=options.extensions)
            log.info("starting", server=config.cluster.server, namespaces=",".join(options.namespaces) or "all")
            async with _recording(recorder), beside(garbage=_collect_garbage(made, clock, filled)):
                await Manager(made.parts, Deadlines(drained=DRAINED)).run(stop)


@asynccontextmanager
async def _summed_up(outage: Outage) -> AsyncIterator[None]:
    """Logs the summary of an outage when the process ends."""
    try:
        yield
    finally:
        outage.end()


async def _collect_garbage(made: Scoped, clock: Clock, filled: Callable[[], object]) -> None:
    """Runs Python's garbage collector while no urgent work waits, also before this process is the leader."""
    for reflector in made.parts.reflectors:
        await reflector.cache.synced.wait()
    filled()
    await collect_quietly(clock, made.calm)


@asynccontextmanager
async def _recording(recorder: EventRecorder | None) -> AsyncIterator[None]:
    """Writes Events while the body runs, and those that are still pending when it ends."""
    if recorder is None:
        yield
        return
    async with beside(events=recorder.run()):
        yield
    await recorder.flush(FLUSH_TIMEOUT)


@asynccontextmanager
async def connected(
    config: Config, options: ManagerOptions, clock: Clock, metrics: Metrics, env: Mapping[str, str]
) -> AsyncIterator[Apis]:
    rate, pacer = options.rate, Pacer(Bounds(most=options.rate.in_flight))
    # The lease must be renewed or given up well before others may take it, so its requests time out early.
    limits = Limits(request=options.terms.renew, write=options.terms.renew, connections=4)
    made: dict[str, Any] = {"clock": clock, "draw": random.random, "env": env, "called": metrics.called}
    async with (
        connect(
            config,
            **made,
            policy=RetryPolicy(throttled=REFUSED),
            limits=Limits(connections=rate.connections, write=min(Limits().write, options.terms.renew)),
            qps=rate.qps,
            burst=rate.burst,
            width=rate.in_flight,
            pacer=pacer,
            sort=priority_of_write,
        ) as work,
        connect(config, **made, limits=limits) as brief,
    ):
        metrics.show(lambda: gate_metrics(work.gate, pacer))
        yield Apis(work, brief)


def new_elector(options: ManagerOptions, config: Config, apis: Apis, clock: Clock, metrics: Metrics) -> Elector | None:
    if not options.elect:
        return None
    return Elector(
        apis.brief,
        clock,
        metrics,
        random.random,
        name=LEASE,
        namespace=_lease_namespace(options, config),
        identity=f"{platform.node() or COMPONENT}_{uuid.uuid4()}",
        terms=options.terms,
    )


def _lease_namespace(options: ManagerOptions, config: Config) -> str:
    return options.lease_namespace or config.namespace


def controller_options(options: ManagerOptions, config: Config) -> ControllerOptions:
    """Completes the options from the environment: unless configured otherwise, the router is assumed to run in our own namespace. If we
    reconcile claims, we also delete released sandboxes."""
    made = options.controllers
    if options.extensions:
        made = replace(made, sandbox=replace(made.sandbox, release_after=RELEASED))
    namespace = options.router_namespace or (config.namespace if config.in_pod else "")
    if not namespace:
        return made
    return replace(made, policy=replace(made.policy, router_namespace=namespace))


def _recorder(api: HttpApi, clock: Clock, metrics: Metrics) -> EventRecorder:
    background = api.with_priority(Priority.STATUS)
    instance = platform.node() or COMPONENT
    return EventRecorder(background, clock, metrics, random.random, controller=COMPONENT, instance=instance)


@asynccontextmanager
async def _pages(
    options: ManagerOptions, metrics: Sequence[Metrics], health: Health, history: ReconcileHistory, clock: Clock
) -> AsyncIterator[None]:
    async def alive(query: Mapping[str, str]) -> Page:
        return Page(b"ok\n")  # it answers, so the event loop runs

    async def ready(query: Mapping[str, str]) -> Page:
        problems = health.problems()
        return Page("".join(f"{line}\n" for line in problems).encode(), 503) if problems else Page(b"ok\n")

    async def scraped(query: Mapping[str, str]) -> Page:
        return Page(exposed(metrics), content_type=CONTENT_TYPE)

    async with AsyncExitStack() as stack:
        tls = await stack.enter_async_context(certified(options.metrics_tls, clock, "--metrics-cert-dir"))
        places: tuple[tuple[str, Address | None, ssl.SSLContext | None, Callable[[], dict[str, Handler]]], ...] = (
            ("--metrics-bind-address", options.metrics_at, tls, lambda: {"/metrics": scraped}),
            ("--health-probe-bind-address", options.health_at, None, lambda: {"/healthz": alive, "/readyz": ready}),
            ("--debug-bind-address", options.debug_at, None, profile_pages),
            ("--stories-bind-address", options.stories_at, None, lambda: history_pages(history)),
        )
        for flag, address, context, pages in places:
            if address is not None:
                bound = await stack.enter_async_context(Pages(pages()).listening(address, flag, context))
                log.info("listening", address=str(bound), pages=",".join(pages()), tls=context is not None)
        yield


def serve_until_stopped(options: ManagerOptions, tracer: Tracer | None = None) -> None:
    """Runs in this process until SIGINT or SIGTERM."""
    import uvloop

    config = load_config(os.environ, Path.home(), path=options.kubeconfig, context=options.context)

    async def main() -> None:
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, stop.set)
        await serve(options, config, stop, os.environ, tracer or NullTracer(), settle_interpreter)

    with ungrouped():
        uvloop.run(main())
