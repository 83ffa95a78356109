"""A cluster on this machine: the parts of local/ put together, started in order and stopped in order.

Order of the start: the data directory's lock, the store, the first namespaces, the cluster's own controllers, the API server,
and only then the word that it is ready. The stop goes the other way round, so that nothing acknowledged is left undone.
"""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import uuid
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import timedelta

from sandpool.assembly.backups import RESTORE_PATH, Restorer
from sandpool.assembly.data_dir import DataDir, Running
from sandpool.kube.errors import SandpoolError
from sandpool.local.api import LocalApi
from sandpool.local.apiserver.access.directory import open_access
from sandpool.local.apiserver.access.kubeconfig import write_kubeconfig
from sandpool.local.apiserver.server import ApiServer, ServerOptions
from sandpool.local.collect import Collector
from sandpool.local.expiry import LIFETIME, EventExpiry
from sandpool.local.namespaces import NamespaceLife, ensure_namespaces
from sandpool.local.objects.objects import Objects
from sandpool.local.store.errors import StoreFailed
from sandpool.local.store.log import Commit
from sandpool.local.store.sqlite_log import SqliteLog
from sandpool.local.store.store import Store
from sandpool.loop.clock import Clock, SystemClock
from sandpool.model import times
from sandpool.telemetry.log import logger
from sandpool.telemetry.metrics import Metrics
from sandpool.version import __version__

log = logger(__name__)


@dataclass(frozen=True, slots=True)
class LocalOptions:
    data_dir: DataDir
    host: str = "127.0.0.1"
    port: int = 0
    event_lifetime: timedelta = LIFETIME


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

    def committed(self, commit: Commit) -> None:
        self.writable = True
        self._metrics.committed(commit.writes, commit.seconds)

    def failed(self, error: StoreFailed) -> None:
        self.writable = False


async def serve(options: LocalOptions, ready: Callable[[LocalCluster], None], stop: asyncio.Event) -> None:
    """Runs a cluster until `stop`. Whatever part fails ends all of it, with that part's error."""
    directory, clock, metrics = options.data_dir, SystemClock(), Metrics()
    directory.prepare()
    async with AsyncExitStack() as stack:
        lock = directory.take()
        stack.callback(lock.release)
        watch = StoreWatch(metrics)
        store = await Store.open(SqliteLog(directory.store), observer=watch)
        stack.push_async_callback(store.close)
        objects = Objects(store, clock.now, lambda: str(uuid.uuid4()))
        await ensure_namespaces(objects)
        access = open_access(directory.access, (options.host,), clock.now())
        settings = ServerOptions(
            host=options.host,
            port=options.port,
            now=clock.now,
            checks={"store": lambda: watch.writable},
            actions={RESTORE_PATH: Restorer(store, directory).restore},
        )
        server = ApiServer(objects, access, settings, metrics=metrics)
        async with asyncio.TaskGroup() as parts:
            tasks = [
                parts.create_task(part.run(), name=type(part).__name__)
                for part in (
                    Collector(store, objects, clock),
                    NamespaceLife(store, objects, clock),
                    EventExpiry(store, objects, clock, options.event_lifetime),
                )
            ]
            await _listen(server, options)
            write_kubeconfig(directory.kubeconfig, server.url, access.authority, access.admin_token)
            running = _running(directory, server, clock)
            lock.publish(running)
            gc.collect()
            gc.freeze()  # what is loaded now stays; the collector need not walk it again and again
            ready(LocalCluster(LocalApi(objects), running))
            await stop.wait()
            log.info("stopping")
            await server.stop()
            for task in tasks:
                task.cancel()


async def _listen(server: ApiServer, options: LocalOptions) -> None:
    try:
        await server.start()
    except OSError as error:
        raise CannotListen(
            f"cannot listen on {options.host} port {options.port}: {error.strerror or error}. "
            "Choose another with --port (0 takes a free one) or --host."
        ) from error


def _running(directory: DataDir, server: ApiServer, clock: Clock) -> Running:
    return Running(
        pid=os.getpid(),
        api=server.url,
        kubeconfig=str(directory.kubeconfig),
        data_dir=str(directory.root),
        version=__version__,
        started=times.seconds(clock.now()),
    )


def serve_until_stopped(options: LocalOptions, greet: Callable[[Running], None]) -> None:
    """Runs a cluster in this process until SIGINT or SIGTERM."""
    import uvloop

    async def main() -> None:
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, stop.set)
        await serve(options, lambda cluster: greet(cluster.running), stop)

    try:
        uvloop.run(main())
    except* (SandpoolError, OSError) as group:
        error: BaseException = group
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        raise error from None
