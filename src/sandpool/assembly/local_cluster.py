"""A cluster on this machine: the parts of local/ put together, started in order and stopped in order.

Order of the start: the data directory's lock, the store, the first namespaces, the cluster's own controllers, the API server,
the kubelet, our four controllers, and only then the word that it is ready. The stop goes the other way round, so that nothing
acknowledged is left undone.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, nullcontext
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial

from sandpool.assembly.backups import RESTORE_PATH, Restorer
from sandpool.assembly.controllers import ControllerOptions, Telling
from sandpool.assembly.damage import store_terms
from sandpool.assembly.data_dir import DataDir, Lock
from sandpool.assembly.first_pool import NO_POOLS, FirstPools, make_pools
from sandpool.assembly.foreseen import ForeseenApi
from sandpool.assembly.interpreter import settle_interpreter
from sandpool.assembly.lifetimes import Work, beside, ungrouped
from sandpool.assembly.local_control import LocalControl
from sandpool.assembly.local_router import LocalRouter, RouterGround, RouterPlace
from sandpool.assembly.machine import BackendName, Machine, MachineOptions, RuntimeName, machine
from sandpool.assembly.open_files import allow_open_files
from sandpool.assembly.router_pod import remove_router_pod
from sandpool.assembly.router_streams import RouterNode, RouterStreams
from sandpool.kube.errors import SandpoolError
from sandpool.kube.nearby import Running
from sandpool.local.api import LocalApi
from sandpool.local.apiserver.access.directory import Access, open_access
from sandpool.local.apiserver.access.kubeconfig import write_kubeconfig
from sandpool.local.apiserver.authenticate import Authenticator
from sandpool.local.apiserver.handlers.runtime import NoRuntime, Runtime
from sandpool.local.apiserver.server import ApiServer, ServerOptions
from sandpool.local.apiserver.streams.serving import PodStreams
from sandpool.local.backends.base import Command
from sandpool.local.collect import Collector
from sandpool.local.disk.guard import DiskGuard
from sandpool.local.disk.space import Disk, Level
from sandpool.local.expiry import LIFETIME, EventExpiry
from sandpool.local.images.options import ImageOptions
from sandpool.local.namespaces import NamespaceLife, ensure_namespaces
from sandpool.local.network.ceiling import UNLIMITED, Ceiling
from sandpool.local.objects.holdings import HoldingLimits
from sandpool.local.objects.objects import Objects
from sandpool.local.objects.uids import NewUids
from sandpool.local.quotas import QuotaStatus
from sandpool.local.store.errors import StoreFailed
from sandpool.local.store.log import Commit
from sandpool.local.store.sqlite_log import SqliteLog
from sandpool.local.store.store import Store
from sandpool.local.store.writer import Bounds
from sandpool.local.volumes.options import VolumeOptions
from sandpool.loop.clock import Clock, SystemClock
from sandpool.model import times
from sandpool.telemetry.log import logger
from sandpool.telemetry.metrics import Metrics
from sandpool.telemetry.trace import NullTracer, Tracer
from sandpool.version import __version__

log = logger(__name__)

MOST_ROOM = 32 * 1024 * 1024
"""Bytes of the disk that the store itself holds, beyond what it needs, in its file and in its write-ahead log each."""
NOTHING_RUNS = "the backend hollow starts no process in a pod, so there is nothing to reach"


@dataclass(frozen=True, slots=True)
class LocalOptions:
    data_dir: DataDir
    host: str = "127.0.0.1"
    port: int = 0
    backend: BackendName = "namespaces"
    images: ImageOptions = field(default_factory=ImageOptions)
    volumes: VolumeOptions = field(default_factory=VolumeOptions)
    runtimes: tuple[RuntimeName, ...] = ()
    ceiling: Ceiling = UNLIMITED
    io_rate: int | None = None  # bytes a second of the disk, for each pod
    controllers: ControllerOptions = field(default_factory=ControllerOptions)
    holdings: HoldingLimits = field(default_factory=HoldingLimits)
    pools: FirstPools = NO_POOLS
    router_host: str = "127.0.0.1"
    router_port: int | None = None  # None: no router; also where pods hold nothing to reach
    events: bool = True  # whether controllers tell what they do as Events
    tracer: Tracer = field(default_factory=NullTracer)
    event_lifetime: timedelta = LIFETIME
    accept_loss: bool = False  # start with what is left of a damaged store
    disk_reserve: int | None = None  # bytes that are kept back for deletes and status; None: as the disk is large


@dataclass(frozen=True, slots=True)
class LocalCluster:
    """What is running: the Api for controllers in this process, and how others reach it."""

    api: LocalApi
    running: Running


class CannotListen(SandpoolError):
    """The address is taken or not ours."""


class StoreWatch:
    """Counts commits, and knows whether the last one worked: a cluster that cannot write is not ready."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self.writable = True
        self.starved: Callable[[], object] = lambda: None  # a commit found no room on the disk

    def committed(self, commit: Commit) -> None:
        self.writable = True
        self._metrics.committed(commit.writes, commit.seconds)

    def failed(self, error: StoreFailed) -> None:
        self.writable = False
        if getattr(error.__cause__, "sqlite_errorcode", None) == sqlite3.SQLITE_FULL:
            self.starved()


@dataclass(frozen=True, slots=True)
class _Ground:
    """What everything else stands on."""

    lock: Lock
    store: Store
    objects: Objects
    watch: StoreWatch
    guard: DiskGuard


async def serve(options: LocalOptions, ready: Callable[[LocalCluster], None], stop: asyncio.Event) -> None:
    """Runs a cluster until `stop`. Whatever part fails ends all of it, with that part's error."""
    clock, telling = SystemClock(), Telling(tracer=options.tracer)
    async with _ground(options, clock, telling.metrics) as ground:
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
            server = _server(options, ground, access, control, runtime, telling, clock)
            async with (
                _listening(server, options),
                control.running(stop) if control else nullcontext(),
                _routing(router, options) as way_in,
            ):
                write_kubeconfig(options.data_dir.kubeconfig, server.url, access.authority, access.admin_token)
                if not stop.is_set():
                    await make_pools(api, options.pools)
                    running = _running(options, server, way_in, clock, ground.guard.reserve)
                    ground.lock.publish(running)
                    ready(LocalCluster(api, running))
                await stop.wait()
                log.info("stopping")


@asynccontextmanager
async def _ground(options: LocalOptions, clock: Clock, metrics: Metrics) -> AsyncIterator[_Ground]:
    directory = options.data_dir
    directory.prepare()
    async with AsyncExitStack() as stack:
        lock = directory.take()
        stack.callback(lock.release)
        watch = StoreWatch(metrics)
        guard = DiskGuard(directory.root, directory.reserve, clock, options.disk_reserve)
        await asyncio.to_thread(guard.open)
        bounds = Bounds(room=min(guard.reserve // 8, MOST_ROOM))
        durable = SqliteLog(directory.store, bounds, store_terms(directory, options.accept_loss))
        store = await Store.open(durable, observer=watch)
        stack.push_async_callback(store.close)
        objects = Objects(store, clock.now, NewUids(), limits=options.holdings)
        metrics.shares |= objects.holdings.shares
        watch.starved = guard.starved
        await ensure_namespaces(objects)
        guard.told = partial(_tell_room, objects)
        guard.told(guard.disk)
        metrics.show(guard.read)
        yield _Ground(lock, store, objects, watch, guard)


def _tell_room(objects: Objects, disk: Disk) -> None:
    objects.room.why = disk.words if disk.level is Level.FULL else ""


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
    ground: _Ground,
    access: Access,
    control: LocalControl | None,
    runtime: Runtime,
    telling: Telling,
    clock: Clock,
) -> ApiServer:
    settings = ServerOptions(
        host=options.host,
        port=options.port,
        now=clock.now,
        checks={"store": lambda: ground.watch.writable, **(control.checks if control else {})},
        actions={RESTORE_PATH: Restorer(ground.store, options.data_dir).restore},
        stories=telling.story.of,
        usage=control.usage if control else None,
    )
    return ApiServer(ground.objects, access, settings, metrics=telling.metrics, runtime=runtime)


def _router(
    options: LocalOptions,
    ground: _Ground,
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
    if router is None:
        streams = PodStreams(node.backend, Command, clock.now)
        metrics.shares["streams"] = streams.shares
        return streams
    with_router = RouterNode(node.backend, router.pod, router.take)
    routed = PodStreams(with_router, Command, clock.now)
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


def _housekeeping(ground: _Ground, clock: Clock, options: LocalOptions) -> dict[str, Work]:
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


def _running(options: LocalOptions, server: ApiServer, way_in: str, clock: Clock, reserve: int) -> Running:
    return Running(
        pid=os.getpid(),
        api=server.url,
        kubeconfig=str(options.data_dir.kubeconfig),
        data_dir=str(options.data_dir.root),
        version=__version__,
        backend=options.backend,
        router=way_in,
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
        await serve(options, ready, stop)

    allow_open_files()
    with ungrouped():
        uvloop.run(main())
