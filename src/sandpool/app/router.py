"""The process of `sandpool router` on a Kubernetes cluster. Replicas share nothing but the key that signs tokens.

Order of the start: pages (so that probes are answered), preflight, caches, the listener. At shutdown it first reports that it is not
ready, waits until no more requests are sent here (in a pod), and then lets those in flight finish.
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
from sandpool.kube.priority import Priority
from sandpool.kube.transport import Limits
from sandpool.loop.cache import Cache
from sandpool.loop.health import Health
from sandpool.loop.lifetimes import beside, reached, ungrouped
from sandpool.loop.reflector import Reflector, Scope
from sandpool.loop.serving_tls import Certificate, CertificateFiles, TlsTerms
from sandpool.model.kinds import SANDBOXES
from sandpool.model.labels import POD_NAME
from sandpool.model.sandbox import PodTemplate, Sandbox
from sandpool.router.activity import Activity, Rhythm
from sandpool.router.audit import Audit, AuditLog, NoAudit
from sandpool.router.authentication import AuthorityCache, RequestAuthenticator
from sandpool.router.directory import Directory
from sandpool.router.gate import GateOptions, RouterGate
from sandpool.router.kubernetes import PodReach, Reviews
from sandpool.router.options import RouterOptions
from sandpool.router.ports import Caller
from sandpool.router.request_log import RequestLog
from sandpool.router.server import RouterServer
from sandpool.router.tokens import read_keys
from sandpool.telemetry.log import logger
from sandpool.telemetry.metrics import CONTENT_TYPE, Metrics, exposed
from sandpool.telemetry.pages import Address, CannotListen, Handler, Page, Pages
from sandpool.telemetry.router_metrics import RouterMetrics
from sandpool.wire.headers import DEFAULT_PORT

log = logger(__name__)

FORWARDED = Caller("port-forward")
"""The caller of port-forwards to this pod, if the operator trusts them."""
PATIENCE = 2.0
"""Seconds that a request waits for a sandbox that is not ready in the cache: the watch may lag behind the client."""
LEAVING = 5.0
"""Seconds in a pod between "not ready" and closing the listener: until then, endpoints may still route requests here."""
GRACE = 20.0
"""Seconds for requests in flight at shutdown, out of Kubernetes' 30."""
EVERYWHERE = "0.0.0.0"  # noqa: S104  # a router must be reachable; the gate decides which requests are admitted
_BARE = PodTemplate(spec=msgspec.Raw(b"{}"))


@dataclass(frozen=True, slots=True)
class KubeRouterOptions:
    kubeconfig: Path | None = None
    context: str = ""
    namespaces: tuple[str, ...] = ()  # empty: all of them
    listen_at: Address = field(default_factory=lambda: Address("127.0.0.1", 8080))
    certificate: CertificateFiles | None = None
    tls_terms: TlsTerms = field(default_factory=TlsTerms)  # for connections with that certificate
    metrics_at: Address | None = None  # None: not served
    metrics_tls: ServerTls | None = None  # None: plain HTTP
    health_at: Address | None = None
    token_keys: tuple[Path, ...] = ()
    audiences: tuple[str, ...] = ()
    audit: Path | None = None
    audit_to_stdout: bool = False
    activity: bool = True
    rhythm: Rhythm = field(default_factory=Rhythm)
    trust_port_forward: bool = False
    daemon_port: int = DEFAULT_PORT  # where boxd listens in pods
    loopback_pods: bool = False  # whether pods may have loopback addresses of this machine
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
    """Runs until `stop`; `ready` is called with the address. If any part fails, everything stops with its error."""
    clock, metrics = SystemClock(), Metrics()
    router_metrics = RouterMetrics(metrics.registry)
    leaving = asyncio.Event()
    async with AsyncExitStack() as stack:
        api = await stack.enter_async_context(_connected(config, clock, metrics, env))
        counted = [Metrics() for _ in options.namespaces]
        reflectors = _reflectors(options, api, clock, counted or [metrics])
        health = Health(list(reflectors.values()), None, clock.monotonic)
        await stack.enter_async_context(_pages(options, [metrics, *counted], health, leaving, router_metrics, clock))
        await Preflight(api, config).check_all((SANDBOXES,), list(_needed(options)), options.namespaces, clock.now())
        running = {f"the reflector of {one.name}": one.run() for one in reflectors.values()}
        await stack.enter_async_context(beside(**running))
        for reflector in reflectors.values():
            if not await reached(reflector.cache.synced, stop):
                return
        gate = await _gate(stack, options, api, reflectors, router_metrics, clock)
        metrics.shares["router_requests"] = gate.shares
        ready(await stack.enter_async_context(_listening(options, gate, router_metrics, clock)))
        await stop.wait()
        leaving.set()
        if config.in_pod:
            log.info("leaving", seconds=LEAVING)
            await clock.sleep(LEAVING)


@asynccontextmanager
async def _connected(config: Config, clock: Clock, metrics: Metrics, env: Mapping[str, str]) -> AsyncIterator[HttpApi]:
    limits = Limits(request=10.0, write=5.0, connections=64)  # short, because a client waits for most of these
    async with connect(
        config, clock=clock, draw=random.random, env=env, called=metrics.called, limits=limits, width=32
    ) as api:
        yield api


def _reflectors(
    options: KubeRouterOptions, api: HttpApi, clock: Clock, metrics: Sequence[Metrics]
) -> dict[str, Reflector[Sandbox]]:
    """One reflector per namespace, each with its own metrics: two in one registry would overwrite each other's gauges."""
    return {
        name: Reflector(
            api, Cache(SANDBOXES, keep=router_transform), clock, counted, random.random, Scope(namespace=name)
        )
        for name, counted in zip(options.namespaces or ("",), metrics, strict=True)
    }


def router_transform(sandbox: Sandbox) -> Sandbox:
    """Cache transform: keeps only the fields that the router reads, often a tenth of the object."""
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
    router_metrics: RouterMetrics,
    clock: Clock,
) -> RouterGate:
    activity = Activity(api.with_priority(Priority.STATUS), clock, options.rhythm) if options.activity else None
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
        authenticator=RequestAuthenticator(AuthorityCache(Reviews(api, options.audiences), clock), signer, clock),
        reach=PodReach(options.daemon_port, loopback=options.loopback_pods),
        signer=signer,
        clock=clock,
        request_log=RequestLog(router_metrics, directory.holds, clock, activity, audit),
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
    options: KubeRouterOptions, gate: RouterGate, router_metrics: RouterMetrics, clock: Clock
) -> AsyncIterator[Address]:
    server = RouterServer(gate, RouterOptions(grace=GRACE, connections=router_connections_for(allowed())), clock)
    certificate = (
        Certificate(options.certificate, clock, router_metrics.cert_reloads, options.tls_terms)
        if options.certificate
        else None
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
    router_metrics: RouterMetrics,
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
            certified(options.metrics_tls, clock, "--metrics-cert-dir", router_metrics.cert_reloads)
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
