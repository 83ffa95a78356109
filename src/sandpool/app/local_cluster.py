"""A cluster on this machine: control plane, node and router put together, started in order and stopped in order.

Order of the start: the data directory's lock, the store, the first namespaces, the cluster's own controllers, the API server,
the kubelet, our four controllers, and only then the word that it is ready. The stop goes the other way round, so that nothing
acknowledged is left undone.
"""

from __future__ import annotations

import asyncio
import os
import signal
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, nullcontext
from dataclasses import dataclass

from sandpool.app.controllers import Telling
from sandpool.app.local_control import LocalControl
from sandpool.app.local_node import Machine, MachineOptions, machine
from sandpool.app.local_options import LocalOptions
from sandpool.app.local_router import LocalRouter, RouterGround, RouterPlace
from sandpool.app.local_store import Ground, StoreWatch, laid
from sandpool.app.open_files import warn_of_few_files
from sandpool.app.prewarm_hook import ForeseenApi
from sandpool.base.clock import Clock, SystemClock
from sandpool.base.errors import SandpoolError
from sandpool.base.interpreter import settle_interpreter
from sandpool.base.open_files import allow_open_files, allowed, connections_for
from sandpool.controlplane.api import LocalApi
from sandpool.controlplane.apiserver.access.directory import Access, open_access
from sandpool.controlplane.apiserver.access.kubeconfig import write_kubeconfig
from sandpool.controlplane.apiserver.authenticate import Authenticator
from sandpool.controlplane.apiserver.handlers.runtime import NoRuntime, Runtime
from sandpool.controlplane.apiserver.limits import Limits, PlentyOfMemory
from sandpool.controlplane.apiserver.server import ApiServer, ServerOptions
from sandpool.controlplane.apiserver.streams.limits import for_files
from sandpool.controlplane.apiserver.streams.serving import PodStreams
from sandpool.controlplane.backups import RESTORE_PATH, Restorer
from sandpool.controlplane.event_expiry import EventExpiry
from sandpool.controlplane.garbage_collection import Collector
from sandpool.controlplane.memory_pressure import MemoryGuard, OutOfMemory, caused_by_memory, ended
from sandpool.controlplane.namespaces import NamespaceLife
from sandpool.controlplane.quota_status import QuotaStatus
from sandpool.controlplane.router_pod import remove_router_pod
from sandpool.controlplane.router_streams import RouterNode, RouterStreams
from sandpool.controlplane.self_check import ApiQuestion, SelfCheck
from sandpool.install.first_pool import make_pools
from sandpool.kube.local_discovery import Running
from sandpool.loop.lifetimes import Work, beside, ungrouped
from sandpool.model import times
from sandpool.node.backend import Command
from sandpool.node.disk.guard import DiskGuard
from sandpool.telemetry.log import logger
from sandpool.telemetry.metrics import Metrics
from sandpool.version import __version__

log = logger(__name__)

NOTHING_RUNS = "the backend hollow starts no process in a pod, so there is nothing to reach"


@dataclass(frozen=True, slots=True)
class LocalCluster:
    """What is running: the Api for controllers in this process, and how others reach it."""

    api: LocalApi
    running: Running


class CannotListen(SandpoolError):
    """The address is taken or not ours."""


async def serve(
    options: LocalOptions,
    ready: Callable[[LocalCluster], None],
    stop: asyncio.Event,
    guard: MemoryGuard | None = None,
) -> None:
    """Runs a cluster until `stop`. Whatever part fails ends all of it, with that part's error."""
    clock, telling = SystemClock(), Telling(tracer=options.tracer)
    async with laid(options, clock, StoreWatch(telling.metrics, guard), telling.metrics) as ground:
        api = ForeseenApi(ground.objects)
        await remove_router_pod(api)
        access = open_access(options.data_dir.access, (options.host,), clock.now())
        async with (
            beside(**_housekeeping(ground, clock, options)),
            _node(options, api, clock, telling, ground.guard) as node,
        ):
            control = _control(options, api, node, clock, telling)
            ground.objects.outright.granter = control.outright if control else None
            router = _router(options, ground, api, access, control, node, telling, clock)
            runtime = _runtime(node, router, clock, telling.metrics)
            server = _server(options, ground, access, control, runtime, telling, clock, guard)
            async with (
                _listening(server, options),
                _checked(server, access, guard),
                control.running(stop) if control else nullcontext(),
                _routing(router, options) as way_in,
            ):
                write_kubeconfig(options.data_dir.kubeconfig, server.url, access.authority, access.admin_token)
                if not stop.is_set():
                    await make_pools(api, options.pools)
                    await warn_of_few_files(api, options.backend)
                    running = _running(options, server, way_in, clock, ground.guard.reserve, node)
                    ground.lock.publish(running)
                    ready(LocalCluster(api, running))
                await stop.wait()
                log.info("stopping")


@asynccontextmanager
async def _node(
    options: LocalOptions, api: LocalApi, clock: Clock, telling: Telling, guard: DiskGuard
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
    async with machine(chosen, api, clock, telling.metrics, guard) as node:
        yield node


def _control(
    options: LocalOptions, api: LocalApi, node: Machine | None, clock: Clock, telling: Telling
) -> LocalControl | None:
    if node is None:
        return None
    return LocalControl(
        api, node.backend, clock, telling, around=node.around, events=options.events, options=options.controllers
    )


def _server(
    options: LocalOptions,
    ground: Ground,
    access: Access,
    control: LocalControl | None,
    runtime: Runtime,
    telling: Telling,
    clock: Clock,
    guard: MemoryGuard | None,
) -> ApiServer:
    checks: dict[str, Callable[[], bool]] = {"store": lambda: ground.watch.writable}
    if guard is not None:
        checks["memory"] = lambda: not guard.short
    settings = ServerOptions(
        host=options.host,
        port=options.port,
        now=clock.now,
        checks={**checks, **(control.checks if control else {})},
        limits=Limits(connections=connections_for(allowed())),
        memory=PlentyOfMemory() if guard is None else guard,
        actions={RESTORE_PATH: Restorer(ground.store, options.data_dir).restore},
        stories=telling.story.of,
        usage=control.usage if control else None,
    )
    return ApiServer(ground.objects, access, settings, metrics=telling.metrics, runtime=runtime)


def _router(
    options: LocalOptions,
    ground: Ground,
    api: ForeseenApi,
    access: Access,
    control: LocalControl | None,
    node: Machine | None,
    telling: Telling,
    clock: Clock,
) -> LocalRouter | None:
    if options.router_port is None or control is None or node is None or not node.real:
        return None
    authenticator = Authenticator(
        access.admin_token, access.signing_key, ground.objects, lambda: clock.now().timestamp()
    )
    return LocalRouter(
        RouterPlace(options.router_host, options.router_port, options.data_dir.audit),
        RouterGround(api, control, node.backend, authenticator, access.router_key, clock, telling.metrics),
    )


def _runtime(node: Machine | None, router: LocalRouter | None, clock: Clock, metrics: Metrics) -> Runtime:
    """Who answers for logs, exec, attach and port-forward."""
    if node is None:
        return NoRuntime()
    if not node.real:
        return NoRuntime(NOTHING_RUNS)
    limits = for_files(allowed())
    if router is None:
        streams = PodStreams(node.backend, Command, clock.now, limits)
        metrics.shares["streams"] = streams.shares
        return streams
    with_router = RouterNode(node.backend, router.pod, router.take)
    routed = PodStreams(with_router, Command, clock.now, limits)
    metrics.shares["streams"] = routed.shares
    return RouterStreams(router.pod, routed)


@asynccontextmanager
async def _routing(router: LocalRouter | None, options: LocalOptions) -> AsyncIterator[str]:
    """The router's address; empty without one."""
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


def _housekeeping(ground: Ground, clock: Clock, options: LocalOptions) -> dict[str, Work]:
    """What a cluster does for its objects whoever made them."""
    store, objects = ground.store, ground.objects
    return {
        "collector": Collector(store, objects, clock).run(),
        "namespaces": NamespaceLife(store, objects, clock).run(),
        "quotas": QuotaStatus(objects, clock).run(),
        "expiry": EventExpiry(store, objects, clock, options.event_lifetime).run(),
        "disk": ground.guard.run(),
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
    """With a guard, this process asks itself whether it can still be asked."""
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
    options: LocalOptions, server: ApiServer, way_in: str, clock: Clock, reserve: int, node: Machine | None
) -> Running:
    return Running(
        pid=os.getpid(),
        api=server.url,
        kubeconfig=str(options.data_dir.kubeconfig),
        data_dir=str(options.data_dir.root),
        version=__version__,
        backend=options.backend,
        router=way_in,
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
        guard.end("a part of it that it cannot do without has failed")
    finally:
        guard.close()
    if guard.why:
        raise OutOfMemory(ended(guard.why))
