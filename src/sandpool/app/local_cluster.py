"""Builds a cluster on this machine: control plane, node and router, started in order and stopped in reverse.

Order of the start: the data directory's lock, the store, the first namespaces, the cluster's own controllers, the API server,
the kubelet, our four controllers. Only then is the cluster reported as ready. It stops in reverse order, so that no acknowledged
write is left undone.
"""

from __future__ import annotations

import asyncio
import os
import signal
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, nullcontext
from dataclasses import dataclass

from sandpool.app.controllers import Observability
from sandpool.app.local_control import LocalControl
from sandpool.app.local_node import Machine, MachineOptions, machine
from sandpool.app.local_options import LocalOptions
from sandpool.app.local_router import LocalRouter, RouterDependencies, RouterSettings
from sandpool.app.local_store import ClusterStore, StoreWatch, open_cluster_store
from sandpool.base.clock import Clock, SystemClock
from sandpool.base.errors import SandpoolError
from sandpool.base.interpreter import settle_interpreter
from sandpool.base.open_files import allow_open_files, allowed, connections_for, sandboxes_for
from sandpool.controlplane.api import LocalApi
from sandpool.controlplane.apiserver.access.directory import Access, open_access, write_kubeconfig
from sandpool.controlplane.apiserver.auth import Authenticator
from sandpool.controlplane.apiserver.handlers.runtime import NoRuntime, Runtime
from sandpool.controlplane.apiserver.limits import Limits, PlentyOfMemory, for_files
from sandpool.controlplane.apiserver.server import ApiServer, ServerOptions
from sandpool.controlplane.apiserver.streams.serving import PodStreams
from sandpool.controlplane.backups import RESTORE_PATH, Restorer
from sandpool.controlplane.event_expiry import EventExpiry
from sandpool.controlplane.garbage_collection import GarbageCollector
from sandpool.controlplane.memory_pressure import (
    ApiQuestion,
    MemoryGuard,
    OutOfMemory,
    SelfCheck,
    caused_by_memory,
    exit_message,
)
from sandpool.controlplane.namespaces import NamespaceController
from sandpool.controlplane.quota_status import QuotaStatus
from sandpool.controlplane.router_pod import RouterNode, RouterStreams, remove_router_pod
from sandpool.install.first_pool import make_pools
from sandpool.kube.api import Api
from sandpool.kube.local_discovery import Running
from sandpool.loop.lifetimes import Work, beside, ungrouped
from sandpool.model import times
from sandpool.model.kinds import POOLS
from sandpool.node.disk.guard import DiskGuard
from sandpool.telemetry.log import logger
from sandpool.telemetry.metrics import Metrics
from sandpool.version import __version__

log = logger(__name__)


async def warn_of_few_files(api: Api, backend: str) -> None:
    """Warns at the start if pools want more sandboxes than this process can hold."""
    if backend in ("hollow", "none"):
        return
    wanted = sum(pool.spec.replicas for pool in (await api.list(POOLS)).items)
    files = allowed()
    if wanted > sandboxes_for(files):
        log.warning(
            "the limit of open files is too low for the pools; start with a higher one (`ulimit -n 65536`, LimitNOFILE= of the unit)",
            limit=files,
            sandboxes=sandboxes_for(files),
            pools=wanted,
        )


NOTHING_RUNS = "the backend hollow starts no process in a pod, so there is nothing to reach"


@dataclass(frozen=True, slots=True)
class LocalCluster:
    """A running cluster: the Api for code in this process, and how other processes reach it."""

    api: LocalApi
    running: Running


class CannotListen(SandpoolError):
    """The address is in use, or does not belong to this machine."""


async def serve(
    options: LocalOptions,
    ready: Callable[[LocalCluster], None],
    stop: asyncio.Event,
    guard: MemoryGuard | None = None,
) -> None:
    """Runs a cluster until `stop`. If any part fails, everything stops with its error."""
    clock, observability = SystemClock(), Observability(history=options.retention.reconciles(), tracer=options.tracer)
    async with open_cluster_store(
        options, clock, StoreWatch(observability.metrics, guard), observability.metrics
    ) as cluster_store:
        api = LocalApi(cluster_store.objects)
        await remove_router_pod(api)
        access = open_access(options.data_dir.access, (options.host,), clock.now())
        async with (
            beside(**_housekeeping(cluster_store, clock, options)),
            _node(options, api, clock, observability, cluster_store.guard) as node,
        ):
            control = _control(options, cluster_store, api, node, clock, observability)
            router = _router(options, cluster_store, api, access, control, node, observability, clock)
            runtime = _runtime(node, router, clock, observability.metrics)
            server = _server(options, cluster_store, access, control, runtime, observability, clock, guard)
            async with (
                _listening(server, options),
                _checked(server, access, guard),
                control.running(stop) if control else nullcontext(),
                _routing(router, options) as router_address,
            ):
                write_kubeconfig(options.data_dir.kubeconfig, server.url, access.authority, access.admin_token)
                if not stop.is_set():
                    await make_pools(api, options.pools)
                    await warn_of_few_files(api, options.backend)
                    running = _running(options, server, router_address, clock, cluster_store.guard.reserve, node)
                    cluster_store.lock.publish(running)
                    ready(LocalCluster(api, running))
                await stop.wait()
                log.info("stopping")


@asynccontextmanager
async def _node(
    options: LocalOptions, api: LocalApi, clock: Clock, observability: Observability, guard: DiskGuard
) -> AsyncIterator[Machine | None]:
    if options.backend == "none":
        yield None
        return
    chosen = MachineOptions(
        options.data_dir.node,
        options.backend,
        options.images,
        options.volumes,
        runtimes=options.runtimes,
        ceiling=options.ceiling,
        io_rate=options.io_rate,
    )
    async with machine(chosen, api, clock, observability.metrics, guard) as node:
        yield node


def _control(
    options: LocalOptions,
    cluster_store: ClusterStore,
    api: LocalApi,
    node: Machine | None,
    clock: Clock,
    observability: Observability,
) -> LocalControl | None:
    if node is None:
        return None
    return LocalControl(
        api,
        node.backend,
        clock,
        observability,
        around=node.around,
        events=options.retention.events if options.events else None,
        options=options.controllers,
        hooks=cluster_store.objects.hooks,
    )


def _server(
    options: LocalOptions,
    cluster_store: ClusterStore,
    access: Access,
    control: LocalControl | None,
    runtime: Runtime,
    observability: Observability,
    clock: Clock,
    guard: MemoryGuard | None,
) -> ApiServer:
    checks: dict[str, Callable[[], bool]] = {"store": lambda: cluster_store.watch.writable}
    if guard is not None:
        checks["memory"] = lambda: not guard.short
    settings = ServerOptions(
        host=options.host,
        port=options.port,
        now=clock.now,
        checks={**checks, **(control.checks if control else {})},
        limits=Limits(connections=connections_for(allowed())),
        memory=PlentyOfMemory() if guard is None else guard,
        actions={RESTORE_PATH: Restorer(cluster_store.store, options.data_dir).restore},
        history=observability.history.of,
        usage=control.usage if control else None,
    )
    return ApiServer(cluster_store.objects, access, settings, metrics=observability.metrics, runtime=runtime)


def _router(
    options: LocalOptions,
    cluster_store: ClusterStore,
    api: LocalApi,
    access: Access,
    control: LocalControl | None,
    node: Machine | None,
    observability: Observability,
    clock: Clock,
) -> LocalRouter | None:
    if options.router_port is None or control is None or node is None or not node.real:
        return None
    authenticator = Authenticator(
        access.admin_token, access.signing_key, cluster_store.objects, lambda: clock.now().timestamp()
    )
    return LocalRouter(
        RouterSettings(options.router_host, options.router_port, options.data_dir.audit),
        RouterDependencies(api, control, node.backend, authenticator, access.router_key, clock, observability.metrics),
    )


def _runtime(node: Machine | None, router: LocalRouter | None, clock: Clock, metrics: Metrics) -> Runtime:
    """Serves logs, exec, attach and port-forward."""
    if node is None:
        return NoRuntime()
    if not node.real:
        return NoRuntime(NOTHING_RUNS)
    limits = for_files(allowed())
    if router is None:
        streams = PodStreams(node.backend, clock.now, limits)
        metrics.shares["streams"] = streams.shares
        return streams
    with_router = RouterNode(node.backend, router.pod, router.take)
    routed = PodStreams(with_router, clock.now, limits)
    metrics.shares["streams"] = routed.shares
    return RouterStreams(router.pod, routed)


@asynccontextmanager
async def _routing(router: LocalRouter | None, options: LocalOptions) -> AsyncIterator[str]:
    """Runs the router, if there is one; yields its address, or an empty text."""
    if router is None:
        yield ""
        return
    async with AsyncExitStack() as stack:
        try:
            with ungrouped():
                address = await stack.enter_async_context(router.running())
        except OSError as error:
            raise CannotListen(
                f"the router cannot listen on {options.router_host} port {options.router_port}: "
                f"{error.strerror or error}. Choose another with --router-port (0 takes a free one)."
            ) from error
        yield address


def _housekeeping(cluster_store: ClusterStore, clock: Clock, options: LocalOptions) -> dict[str, Work]:
    """The controllers that a cluster itself runs."""
    store, objects = cluster_store.store, cluster_store.objects
    return {
        "collector": GarbageCollector(store, objects, clock).run(),
        "namespaces": NamespaceController(store, objects, clock).run(),
        "quotas": QuotaStatus(objects, clock).run(),
        "expiry": EventExpiry(store, objects, clock, options.event_lifetime, options.retention.event_bytes).run(),
        "disk": cluster_store.guard.run(),
    }


@asynccontextmanager
async def _listening(server: ApiServer, options: LocalOptions) -> AsyncIterator[None]:
    try:
        await server.start()
    except OSError as error:
        raise CannotListen(
            f"cannot listen on {options.host} port {options.port}: {error.strerror or error}. "
            "Choose another with --port (0 takes a free one) or --host."
        ) from error
    try:
        yield
    finally:
        await server.stop()


@asynccontextmanager
async def _checked(server: ApiServer, access: Access, guard: MemoryGuard | None) -> AsyncIterator[None]:
    """Checks that our own API still answers, if there is a guard."""
    if guard is None:
        yield
        return
    tls = ssl.create_default_context(cadata=access.authority.decode())
    check = SelfCheck(ApiQuestion(server.url, access.admin_token, tls), guard)
    try:
        yield
    finally:
        await asyncio.to_thread(check.close)


def _running(
    options: LocalOptions, server: ApiServer, router_address: str, clock: Clock, reserve: int, node: Machine | None
) -> Running:
    return Running(
        pid=os.getpid(),
        api=server.url,
        kubeconfig=str(options.data_dir.kubeconfig),
        data_dir=str(options.data_dir.root),
        version=__version__,
        backend=options.backend,
        router=router_address,
        unheld=() if node is None else node.unheld,
        disk_reserve=reserve,
        started=times.seconds(clock.now()),
    )


def serve_until_stopped(options: LocalOptions, greet: Callable[[Running], None]) -> None:
    """Runs a cluster in this process until SIGINT or SIGTERM."""
    import uvloop

    def ready(cluster: LocalCluster) -> None:
        settle_interpreter()
        greet(cluster.running)

    async def main() -> None:
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, stop.set)
        guard.watch(loop, stop)
        await serve(options, ready, stop, guard)

    allow_open_files()
    guard = MemoryGuard()
    try:
        with ungrouped():
            uvloop.run(main())
    except BaseException as error:
        if not caused_by_memory(error):
            raise
        guard.end("an essential part of it has failed")
    finally:
        guard.close()
    if guard.why:
        raise OutOfMemory(exit_message(guard.why))
