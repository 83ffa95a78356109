"""The controllers on a Kubernetes cluster: one process, in a pod or outside, beside others of which one leads.

Order of the start: pages (so that probes are answered), preflight, caches, the lease, the controllers. The stop goes the
other way round: controllers finish what waits, the lease is released, Events that still wait are written.
The lease has connections of its own, so that no burst of writes delays a renewal.
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
from pathlib import Path
from types import MappingProxyType
from typing import Any

from sandpool.app.controllers import ControllerOptions, Telling
from sandpool.app.scopes import Scoped, scoped
from sandpool.app.server_tls import ServerTls, certified
from sandpool.base.clock import Clock, SystemClock
from sandpool.base.interpreter import collect_quietly, settle_interpreter
from sandpool.install.preflight import Preflight
from sandpool.install.rules import LEASE
from sandpool.kube.config import Config
from sandpool.kube.http import HttpApi, connect
from sandpool.kube.kubeconfig import load_config
from sandpool.kube.lanes import Lane
from sandpool.kube.pacing import Bounds, Pacer
from sandpool.kube.retry import RetryPolicy
from sandpool.kube.transport import Limits
from sandpool.kube.write_lanes import lane_of_write, shown
from sandpool.loop.events import EventRecorder
from sandpool.loop.health import Health
from sandpool.loop.lease import Elector, Terms
from sandpool.loop.lifetimes import beside, ungrouped
from sandpool.loop.manager import Deadlines, Manager
from sandpool.loop.outage import Outage
from sandpool.telemetry.exposition import exposed
from sandpool.telemetry.history_pages import story_pages
from sandpool.telemetry.log import logger
from sandpool.telemetry.metrics import CONTENT_TYPE, Metrics
from sandpool.telemetry.pages import Address, Handler, Page, Pages
from sandpool.telemetry.profiles import profile_pages
from sandpool.telemetry.reconcile_history import Story
from sandpool.telemetry.trace import NullTracer, Tracer

log = logger(__name__)

COMPONENT = "sandpool-controller"
"""Who Events are reported by."""
DRAINED = 20.0
"""Seconds that reconciles under way have to end; the rest of the 30 that Kubernetes gives is for the lease and the Events."""
RELEASED = 0.25
"""Seconds that the garbage collector has to delete what a claim released. One that is idle takes a few hundredths, and what it has done
nobody does twice; when many claims are released at once it would take half a minute, and longer where others use it as well."""
TOLD = 2.0
"""Seconds that Events still waiting at the end have to be written."""
REFUSED = 45.0
"""Seconds in which a write that the server refuses (429) keeps its place in line. Less than a reconcile may take (loop/controller.py): one that fails
begins again at the end of the line."""


@dataclass(frozen=True, slots=True)
class Rate:
    """Towards the API server. Upper bounds: within them, its answers decide."""

    qps: float = 0.0  # 0 or less: no limit
    burst: int = 10
    in_flight: int = 50  # writes under way at once

    @property
    def connections(self) -> int:
        """At most: reads must not wait for writes. Watches have further ones."""
        return 2 * self.in_flight


@dataclass(frozen=True, slots=True)
class ManagerOptions:
    kubeconfig: Path | None = None
    context: str = ""
    namespaces: tuple[str, ...] = ()  # none: all of them
    extensions: bool = True  # claims, pools and templates, not sandboxes alone
    elect: bool = True
    lease_namespace: str = ""  # where we run, if empty
    terms: Terms = field(default_factory=Terms)
    rate: Rate = field(default_factory=Rate)
    events: bool = True
    metrics_at: Address | None = None  # None: not at all
    metrics_tls: ServerTls | None = None  # None: by plain HTTP
    health_at: Address | None = None
    debug_at: Address | None = None
    stories_at: Address | None = None
    router_namespace: str = ""  # where we run if that is a pod, if empty
    controllers: ControllerOptions = field(default_factory=ControllerOptions)


@dataclass(frozen=True, slots=True)
class Apis:
    """Two ways to one server: for what the controllers do, and for the lease and whatever else must end soon."""

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
    """Runs until `stop`. Whatever part fails ends all of it, with that part's error. `env` is for credential plugins. `filled` is
    called once, when all caches are: what they hold will stay."""
    clock = SystemClock()
    outage = Outage(clock.monotonic)
    telling = Telling(tracer=tracer, outage=outage)
    telling.metrics.show_process()
    async with _summed_up(outage), _connected(config, options, clock, telling.metrics, env) as apis:
        elector = _elector(options, config, apis, clock, telling.metrics)
        recorder = _recorder(apis.work, clock, telling.metrics) if options.events else None
        if recorder is not None:
            telling = replace(telling, events=recorder)
        made = scoped(
            options.namespaces,
            apis.work,
            clock,
            random.random,
            telling,
            _controllers(options, config),
            elector,
            extensions=options.extensions,
            lanes=apis.work.gate,
        )
        health = Health(made.parts.reflectors, elector, clock.monotonic)
        async with _pages(options, made.metrics, health, telling.story, clock):
            lease_namespace = _lease_namespace(options, config) if elector is not None else ""
            preflight = Preflight(apis.brief, config)
            await preflight.check(options.namespaces, lease_namespace, clock.now(), extensions=options.extensions)
            log.info("starting", server=config.cluster.server, namespaces=",".join(options.namespaces) or "all")
            async with _told(recorder), beside(garbage=_collected(made, clock, filled)):
                await Manager(made.parts, Deadlines(drained=DRAINED)).run(stop)


@asynccontextmanager
async def _summed_up(outage: Outage) -> AsyncIterator[None]:
    """A process that ends because of an outage says how much failed."""
    try:
        yield
    finally:
        outage.end()


async def _collected(made: Scoped, clock: Clock, filled: Callable[[], object]) -> None:
    """Garbage is looked for while nobody waits, also in one that does not lead yet: it will have no time for it when it does."""
    for reflector in made.parts.reflectors:
        await reflector.cache.synced.wait()
    filled()
    await collect_quietly(clock, made.calm)


@asynccontextmanager
async def _told(recorder: EventRecorder | None) -> AsyncIterator[None]:
    """Events are written beside the controllers; what still waits at the end is written then."""
    if recorder is None:
        yield
        return
    async with beside(events=recorder.run()):
        yield
    await recorder.flush(TOLD)


@asynccontextmanager
async def _connected(
    config: Config, options: ManagerOptions, clock: Clock, metrics: Metrics, env: Mapping[str, str]
) -> AsyncIterator[Apis]:
    rate, pacer = options.rate, Pacer(Bounds(most=options.rate.in_flight))
    # The lease must be renewed or given up well before others may take it: its requests are cut off early.
    limits = Limits(request=options.terms.renew, write=options.terms.renew, connections=4)
    made: dict[str, Any] = {"clock": clock, "draw": random.random, "env": env, "told": metrics.called}
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
            sort=lane_of_write,
        ) as work,
        connect(config, **made, limits=limits) as brief,
    ):
        metrics.show(lambda: shown(work.gate, pacer))
        yield Apis(work, brief)


def _elector(options: ManagerOptions, config: Config, apis: Apis, clock: Clock, metrics: Metrics) -> Elector | None:
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


def _controllers(options: ManagerOptions, config: Config) -> ControllerOptions:
    """The router runs where we do, unless somebody says otherwise; who runs outside a cluster cannot know. What claims release is deleted
    here, where claims are ours at all."""
    made = options.controllers
    if options.extensions:
        made = replace(made, sandbox=replace(made.sandbox, release_after=RELEASED))
    namespace = options.router_namespace or (config.namespace if config.in_pod else "")
    if not namespace:
        return made
    return replace(made, policy=replace(made.policy, router_namespace=namespace))


def _recorder(api: HttpApi, clock: Clock, metrics: Metrics) -> EventRecorder:
    background = api.in_lane(Lane.STATUS)
    instance = platform.node() or COMPONENT
    return EventRecorder(background, clock, metrics, random.random, controller=COMPONENT, instance=instance)


@asynccontextmanager
async def _pages(
    options: ManagerOptions, metrics: Sequence[Metrics], health: Health, story: Story, clock: Clock
) -> AsyncIterator[None]:
    async def alive(query: Mapping[str, str]) -> Page:
        return Page(b"ok\n")  # that the event loop runs is what this says

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
            ("--stories-bind-address", options.stories_at, None, lambda: story_pages(story)),
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
