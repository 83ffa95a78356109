"""The API server as a whole: builds it from Objects and Access, starts it on a port, and stops it gracefully."""

from __future__ import annotations

import asyncio
import random
import socket
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import formatdate

from sandpool.base.tls_listener import TlsListener
from sandpool.controlplane.apiserver.access.directory import Access
from sandpool.controlplane.apiserver.app import App
from sandpool.controlplane.apiserver.auth import Authenticator
from sandpool.controlplane.apiserver.connection import Connection, ServerState
from sandpool.controlplane.apiserver.discovery import Discovery
from sandpool.controlplane.apiserver.dispatch import Dispatcher
from sandpool.controlplane.apiserver.fairness import ConnectionOwners, ResponseBudget, Seats
from sandpool.controlplane.apiserver.handlers.delete import Deletes
from sandpool.controlplane.apiserver.handlers.public import Action, Check, HistoryPages, HistorySource, Public
from sandpool.controlplane.apiserver.handlers.read import Reads
from sandpool.controlplane.apiserver.handlers.reviews import Reviews
from sandpool.controlplane.apiserver.handlers.runtime import NoRuntime, Runtime
from sandpool.controlplane.apiserver.handlers.token_request import TokenRequests
from sandpool.controlplane.apiserver.handlers.usage import UsagePages
from sandpool.controlplane.apiserver.handlers.watch import Watches
from sandpool.controlplane.apiserver.handlers.write import Writes
from sandpool.controlplane.apiserver.limits import Limits, Memory, PlentyOfMemory
from sandpool.controlplane.apiserver.openapi.document import OpenApi
from sandpool.controlplane.apiserver.routes import Routes
from sandpool.controlplane.objects.objects import Objects
from sandpool.model.usage import MEASURED, Usage
from sandpool.telemetry.log import logger
from sandpool.telemetry.metrics import Metrics

log = logger(__name__)

SWEEP = 1.0
"""Seconds between sweeps over all connections, unless a limit is shorter. A sweep also refreshes the Date header."""


CLOSING = 0.5
"""Seconds for connections to close after their last response."""


def _now() -> datetime:
    return datetime.now(UTC)


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """Options of an API server."""

    host: str = "127.0.0.1"  # any address except loopback makes it reachable from other machines
    port: int = 0  # 0: any free port
    limits: Limits = field(default_factory=Limits)
    now: Callable[[], datetime] = _now
    dice: Callable[[], float] = random.random
    new_id: Callable[[], str] = field(default=lambda: str(uuid.uuid4()))
    checks: dict[str, Check] = field(default_factory=dict)  # the checks of readyz, by name
    actions: dict[str, Action] = field(default_factory=dict)  # actions by path, which the admin may POST to
    usage: Usage | None = None  # usage of pods; None: not measured, and metrics.k8s.io is not served
    memory: Memory = field(default_factory=PlentyOfMemory)
    history: HistorySource | None = None  # reconcile history by key; None: no controllers run here


class ApiServer:
    """`await start()`, then `url` and `port` are known; `await stop()` ends it within `limits.graceful`."""

    def __init__(
        self,
        objects: Objects,
        access: Access,
        options: ServerOptions = ServerOptions(),
        *,
        metrics: Metrics | None = None,
        runtime: Runtime | None = None,
    ) -> None:
        self._access = access
        self._options = options
        self._objects = objects
        self._metrics = metrics or Metrics()
        self._runtime = runtime or NoRuntime()
        self.state: ServerState
        self._listener: TlsListener | None = None
        self._sweeper: asyncio.TimerHandle | None = None
        self._sending = ResponseBudget(options.limits)
        self._watches = Watches(objects, options.limits, self._metrics, self._sending, options.now, options.dice)
        self._owners = ConnectionOwners(options.limits)
        self.seats = Seats(options.limits.requests, self._owners.make_room)
        self._metrics.shares |= {
            "connections": self._owners.shares,
            "requests": self.seats.shares,
            "watches": self._watches.shares,
            "unsent_bytes": self._sending.unsent,
            "snapshot_bytes": self._sending.snapshots,
        }
        self._stopping = False
        self._empty = asyncio.Event()
        self.port = 0

    @property
    def url(self) -> str:
        host = self._options.host
        shown = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(host) or (f"[{host}]" if ":" in host else host)  # noqa: S104
        return f"https://{shown}:{self.port}"

    async def start(self) -> None:
        """Binds and serves. OSError if the address cannot be bound."""
        listener = _listen(self._options.host, self._options.port)
        self.port = listener.getsockname()[1]
        loop = asyncio.get_running_loop()
        state = self.state = ServerState(
            self._app().serve, self._options.limits, self._owners, self._sending, self._empty.set, loop
        )
        limits = self._options.limits
        self._listener = TlsListener(
            listener,
            self._access.tls(),
            lambda: Connection(state),
            handshakes=limits.handshakes,
            handshake_timeout=limits.handshake,
            expected=self._options.memory.noticed,
        )
        self._listener.open()
        self._sweep()
        log.info("the API server listens", url=self.url)

    def _app(self) -> App:
        options, objects, limits = self._options, self._objects, self._options.limits
        routes = Routes(measured=() if options.usage is None else MEASURED)
        checks = {"stopping": lambda: not self._stopping, **options.checks}
        public = Public(
            Discovery(routes, self.url.removeprefix("https://")),
            OpenApi(routes, options.now),
            self._metrics,
            checks,
            options.actions,
            HistoryPages(options.history),
            limits,
        )
        dispatcher = Dispatcher(
            routes,
            objects,
            Reads(objects, self._sending, options.now),
            Writes(objects, limits, options.now),
            Deletes(objects, limits, self._sending, options.now),
            self._watches,
            Reviews(limits, options.now),
            TokenRequests(objects, limits, self._access.signing_key, options.now, options.new_id),
            public,
            self._runtime,
            None if options.usage is None else UsagePages(objects, options.usage, self._sending, options.now),
        )
        authenticator = Authenticator(
            self._access.admin_token, self._access.signing_key, objects, lambda: options.now().timestamp()
        )
        return App(routes, authenticator, dispatcher, self.seats, self._metrics, options.memory)

    def _sweep(self) -> None:
        """Repeats: refreshes the Date header and ends connections that exceed their time limits."""
        self.state.date = b"date: %b\r\n" % formatdate(time.time(), usegmt=True).encode()
        loop = asyncio.get_running_loop()
        now = loop.time()
        for connection in list(self.state.connections):
            connection.sweep(now)
        limits = self._options.limits
        self._sweeper = loop.call_later(min(SWEEP, limits.arrival / 2, limits.stalled / 2), self._sweep)

    async def stop(self) -> None:
        """Accepts nothing more, ends watches cleanly, lets requests in flight finish, then closes what is left."""
        if self._listener is None:
            return
        self._stopping = True
        self.state.closing = True
        self._listener.close()
        self._watches.end_all()
        for connection in list(self.state.connections):
            connection.shutdown()
        self.state.begin_all()
        tasks = set(self.state.tasks)
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=self._options.limits.graceful)
            for task in late:
                task.cancel()
            if late:
                log.warning("requests were cut off at the end", requests=len(late))
                await asyncio.wait(late, timeout=1.0)
        await self._listener.closed()
        await self._disconnect()
        if self._sweeper is not None:
            self._sweeper.cancel()
        self._listener = None

    async def _disconnect(self) -> None:
        """Waits a moment for closing connections, then aborts them."""
        if self.state.connections:
            self._empty.clear()
            try:
                async with asyncio.timeout(CLOSING):
                    await self._empty.wait()
            except TimeoutError:
                for connection in list(self.state.connections):
                    connection.transport.abort()
                await asyncio.sleep(0)


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio sets TCP_NODELAY only if the protocol is given.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.setblocking(False)
    except OSError:
        listener.close()
        raise
    return listener
