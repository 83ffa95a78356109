"""`sandpool router`: the way in on a Kubernetes cluster. Several replicas run side by side; they share nothing but the key of tokens.

Order of the start: pages (so that probes are answered), preflight, caches, the listener. At the end it says first that it is not
ready, waits until nobody is sent here any more (in a pod), then lets requests finish.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import ssl
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, closing, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType

import msgspec

from sandpool.app.server_tls import ServerTls, certified
from sandpool.base.clock import Clock, SystemClock
from sandpool.base.open_files import allowed, requests_for, router_connections_for
from sandpool.install.preflight import Asked, Preflight
from sandpool.install.rules import ROUTER_ACTIVITY, ROUTER_CLUSTER, ROUTER_NAMESPACED
from sandpool.kube.config import Config
from sandpool.kube.http import HttpApi, connect
from sandpool.kube.kubeconfig import load_config
from sandpool.kube.lanes import Lane
from sandpool.kube.transport import Limits
from sandpool.loop.cache import Cache
from sandpool.loop.health import Health
from sandpool.loop.lifetimes import beside, reached, ungrouped
from sandpool.loop.reflector import Reflector, Scope
from sandpool.loop.serving_certificate import Certificate, CertificateFiles
from sandpool.loop.tls_terms import TlsTerms
from sandpool.model.kinds import SANDBOXES
from sandpool.model.labels import POD_NAME
from sandpool.model.sandbox import PodTemplate, Sandbox
from sandpool.router.activity import Activity, Rhythm
from sandpool.router.audit import Audit, AuditLog, NoAudit
from sandpool.router.callers import Callers
from sandpool.router.gate import GateOptions, RouterGate
from sandpool.router.lookup import Directory
from sandpool.router.options import RouterOptions
from sandpool.router.pods import PodReach
from sandpool.router.ports import Caller
from sandpool.router.proof import Prover
from sandpool.router.reviews import Reviews
from sandpool.router.seen import Seen
from sandpool.router.server import RouterServer
from sandpool.router.tokens import read_keys
from sandpool.telemetry.exposition import exposed
from sandpool.telemetry.log import logger
from sandpool.telemetry.metrics import CONTENT_TYPE, Metrics
from sandpool.telemetry.pages import Address, CannotListen, Handler, Page, Pages
from sandpool.telemetry.router_metrics import RouterMetrics
from sandpool.wire.headers import DEFAULT_PORT

log = logger(__name__)

FORWARDED = Caller("port-forward")
"""Whoever the API server lets forward a port of this pod, where an operator trusts that."""
PATIENCE = 2.0
"""Seconds that a request waits for news of a sandbox that is not known as ready: the watch runs behind those who have just heard."""
LEAVING = 5.0
"""Seconds between "not ready" and the end of listening, in a pod: until then others may still send requests here."""
GRACE = 20.0
"""Seconds for requests under way; the rest of the 30 that Kubernetes gives is for what comes before."""
EVERYWHERE = "0.0.0.0"  # noqa: S104  # a router is there to be reached; who gets in is the gate's
_BARE = PodTemplate(spec=msgspec.Raw(b"{}"))


@dataclass(frozen=True, slots=True)
class KubeRouterOptions:
    kubeconfig: Path | None = None
    context: str = ""
    namespaces: tuple[str, ...] = ()  # none: all of them
    listen_at: Address = field(default_factory=lambda: Address("127.0.0.1", 8080))
    certificate: CertificateFiles | None = None
    tls_terms: TlsTerms = field(default_factory=TlsTerms)  # of that certificate's connections
    metrics_at: Address | None = None  # None: not at all
    metrics_tls: ServerTls | None = None  # None: by plain HTTP
    health_at: Address | None = None
    token_keys: tuple[Path, ...] = ()
    audiences: tuple[str, ...] = ()
    audit: Path | None = None
    audit_to_stdout: bool = False
    activity: bool = True
    rhythm: Rhythm = field(default_factory=Rhythm)
    trust_port_forward: bool = False
    daemon_port: int = DEFAULT_PORT  # where boxd listens in pods
    loopback_pods: bool = False  # pods may have addresses of this machine
    gate: GateOptions = field(default_factory=GateOptions)


def _nobody(address: Address) -> None:
    return None


async def serve(
    options: KubeRouterOptions,
    config: Config,
    stop: asyncio.Event,
    env: Mapping[str, str] = MappingProxyType({}),
    ready: Callable[[Address], object] = _nobody,
) -> None:
    """Runs until `stop`; `ready` hears where it listens. Whatever part fails ends all of it, with that part's error."""
    clock, metrics = SystemClock(), Metrics()
    told = RouterMetrics(metrics.registry)
    leaving = asyncio.Event()
    async with AsyncExitStack() as stack:
        api = await stack.enter_async_context(_connected(config, clock, metrics, env))
        counted = [Metrics() for _ in options.namespaces]
        reflectors = _reflectors(options, api, clock, counted or [metrics])
        health = Health(list(reflectors.values()), None, clock.monotonic)
        await stack.enter_async_context(_pages(options, [metrics, *counted], health, leaving, told, clock))
        await Preflight(api, config).check_all((SANDBOXES,), list(_needed(options)), options.namespaces, clock.now())
        running = {f"the reflector of {one.name}": one.run() for one in reflectors.values()}
        await stack.enter_async_context(beside(**running))
        for reflector in reflectors.values():
            if not await reached(reflector.cache.synced, stop):
                return
        gate = await _gate(stack, options, api, reflectors, told, clock)
        metrics.shares["router_requests"] = gate.shares
        ready(await stack.enter_async_context(_listening(options, gate, told, clock)))
        await stop.wait()
        leaving.set()
        if config.in_pod:
            log.info("leaving", seconds=LEAVING)
            await clock.sleep(LEAVING)


@asynccontextmanager
async def _connected(config: Config, clock: Clock, metrics: Metrics, env: Mapping[str, str]) -> AsyncIterator[HttpApi]:
    limits = Limits(request=10.0, write=5.0, connections=64)  # somebody waits for most of these
    async with connect(
        config, clock=clock, draw=random.random, env=env, told=metrics.called, limits=limits, width=32
    ) as api:
        yield api


def _reflectors(
    options: KubeRouterOptions, api: HttpApi, clock: Clock, metrics: Sequence[Metrics]
) -> dict[str, Reflector[Sandbox]]:
    """By namespace. Each counts for itself: two that counted into one set of metrics would hide each other."""
    return {
        name: Reflector(api, Cache(SANDBOXES, keep=gist), clock, counted, random.random, Scope(namespace=name))
        for name, counted in zip(options.namespaces or ("",), metrics, strict=True)
    }


def gist(sandbox: Sandbox) -> Sandbox:
    """What a router reads of a sandbox: a tenth of it, where pods are described at length."""
    meta, spec = sandbox.metadata, sandbox.spec
    pod = meta.annotations.get(POD_NAME)
    replaced = msgspec.structs.replace
    return replaced(
        sandbox,
        metadata=replaced(meta, labels={}, annotations={POD_NAME: pod} if pod else {}),
        spec=replaced(spec, pod_template=_BARE, volume_claim_templates=None),
    )


def _needed(options: KubeRouterOptions) -> Iterator[Asked]:
    for rule in (*ROUTER_NAMESPACED, *(ROUTER_ACTIVITY if options.activity else ())):
        for namespace in options.namespaces or ("",):
            yield from (Asked(rule, verb, namespace) for verb in rule.verbs)
    for rule in ROUTER_CLUSTER:
        yield from (Asked(rule, verb, "") for verb in rule.verbs)


async def _gate(
    stack: AsyncExitStack,
    options: KubeRouterOptions,
    api: HttpApi,
    reflectors: Mapping[str, Reflector[Sandbox]],
    told: RouterMetrics,
    clock: Clock,
) -> RouterGate:
    activity = Activity(api.in_lane(Lane.STATUS), clock, options.rhythm) if options.activity else None
    if activity is not None:
        await stack.enter_async_context(beside(activity=activity.run()))
    audit = stack.enter_context(_audit(options, clock))
    signer = read_keys(options.token_keys)
    if not signer.able:
        log.warning("no key: tokens for one sandbox are neither made nor accepted", flag="--token-key-file")
    directory = Directory({name: one.cache for name, one in reflectors.items()}, clock, PATIENCE)
    near = FORWARDED if options.trust_port_forward else None
    return RouterGate(
        directory=directory,
        prover=Prover(Callers(Reviews(api, options.audiences), clock), signer, clock),
        reach=PodReach(options.daemon_port, loopback=options.loopback_pods),
        signer=signer,
        clock=clock,
        seen=Seen(told, directory.holds, clock, activity, audit),
        options=replace(options.gate, near=near, daemon_port=options.daemon_port, requests=requests_for(allowed())),
    )


@contextmanager
def _audit(options: KubeRouterOptions, clock: Clock) -> Iterator[Audit]:
    if options.audit is None and not options.audit_to_stdout:
        yield NoAudit()
        return
    with closing(AuditLog(options.audit, clock)) as audit:
        yield audit


@asynccontextmanager
async def _listening(
    options: KubeRouterOptions, gate: RouterGate, told: RouterMetrics, clock: Clock
) -> AsyncIterator[Address]:
    server = RouterServer(gate, RouterOptions(grace=GRACE, connections=router_connections_for(allowed())), clock)
    certificate = (
        Certificate(options.certificate, clock, told.cert_reloads, options.tls_terms) if options.certificate else None
    )
    where = options.listen_at
    try:
        bound = await server.listen(where.host or EVERYWHERE, where.port, certificate.context if certificate else None)
    except OSError as error:
        raise CannotListen(
            f"cannot listen on {where}: {error.strerror or error}. Choose another address with --listen-address"
        ) from error
    log.info("listening", address=str(Address(*bound)), tls=certificate is not None)
    try:
        async with beside(**({"certificate": certificate.follow()} if certificate else {})):
            yield Address(*bound)
    finally:
        await server.stop()


@asynccontextmanager
async def _pages(
    options: KubeRouterOptions,
    metrics: Sequence[Metrics],
    health: Health,
    leaving: asyncio.Event,
    told: RouterMetrics,
    clock: Clock,
) -> AsyncIterator[None]:
    async def alive(query: Mapping[str, str]) -> Page:
        return Page(b"ok\n")

    async def ready(query: Mapping[str, str]) -> Page:
        problems = ["draining"] if leaving.is_set() else health.problems()
        return Page("".join(f"{line}\n" for line in problems).encode(), 503) if problems else Page(b"ok\n")

    async def scraped(query: Mapping[str, str]) -> Page:
        return Page(exposed(metrics), content_type=CONTENT_TYPE)

    async with AsyncExitStack() as stack:
        tls = await stack.enter_async_context(
            certified(options.metrics_tls, clock, "--metrics-cert-dir", told.cert_reloads)
        )
        places: tuple[tuple[str, Address | None, ssl.SSLContext | None, dict[str, Handler]], ...] = (
            ("--metrics-bind-address", options.metrics_at, tls, {"/metrics": scraped}),
            ("--health-probe-bind-address", options.health_at, None, {"/healthz": alive, "/readyz": ready}),
        )
        for flag, address, context, pages in places:
            if address is not None:
                bound = await stack.enter_async_context(Pages(pages).listening(address, flag, context))
                log.info("listening", address=str(bound), pages=",".join(pages), tls=context is not None)
        yield


def serve_until_stopped(options: KubeRouterOptions) -> None:
    """Runs in this process until SIGINT or SIGTERM."""
    import uvloop

    config = load_config(os.environ, Path.home(), path=options.kubeconfig, context=options.context)

    async def main() -> None:
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, stop.set)
        await serve(options, config, stop, os.environ)

    with ungrouped():
        uvloop.run(main())
