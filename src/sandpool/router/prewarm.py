"""Connects to boxd when a claim gets a sandbox, because its first command follows soon.

boxd starts its work with the first connection, and that costs more than the rest of a small request. Here it happens while the claim
is still on its way back to the client; until the command runs, the pool's refill pauses. It is only an optimisation: if the connection
is not ready in time, or fails, the first request opens its own.
"""

from __future__ import annotations

import asyncio
import socket
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import datetime

from msgspec.structs import replace

from sandpool.base.clock import Clock, Timer
from sandpool.kube.priority import UrgentWork
from sandpool.model.claim import SandboxClaim
from sandpool.model.labels import EXTENSIONS
from sandpool.model.sandbox import Sandbox
from sandpool.router.directory import find, pooled
from sandpool.router.ports import NoAnswer, Target
from sandpool.router.upstreams import quiet
from sandpool.telemetry.log import logger

log = logger(__name__)

AT_ONCE = 4
"""Sandboxes that are being connected to at the same time; others wait."""
PACE = 0.01
"""Seconds between two connections if more wait: about the rate at which one core can start boxd, so that claims keep the other."""
MOST = 256
"""Connections that are kept or planned; beyond it the first request opens its own."""
PATIENCE = 5.0
"""Seconds for one connection."""
KEPT = 10.0
"""Seconds to wait for the first request. Then the connection is closed; boxd keeps running."""
NEAR = 0.05
"""Seconds that background work pauses while the first command is expected."""
UNDER_WAY = 0.02
"""Seconds that it pauses after the first command was forwarded, so that the event loop is free for its output."""
EACH = 0.005
"""Seconds more for each other sandbox that is expected at the same time: they share the machine."""
LONGEST = 0.5
"""Seconds of pause at most."""

Connect = Callable[[Target], Awaitable[socket.socket]]


def opened(old: Sandbox | None, new: Sandbox | None, now: datetime) -> Target | None:
    """The sandbox, if this change makes it usable for the owner of a claim."""
    owner = None if new is None else new.metadata.controller
    if old is None or new is None or owner is None or (owner.group, owner.kind) != (EXTENSIONS, SandboxClaim.kind):
        return None
    key, uid = new.metadata.key, new.metadata.uid
    after = find(new, key, uid, now)
    return after if isinstance(after, Target) and not isinstance(find(old, key, uid, now), Target) else None


def prewarm_target(member: Sandbox, now: datetime) -> Target | None:
    """A pool's member as its next owner will see it, if it can be used at once."""
    if not pooled(member):
        return None
    free = replace(member, metadata=replace(member.metadata, owner_references=()))
    found = find(free, member.metadata.key, member.metadata.uid, now)
    return found if isinstance(found, Target) else None


def rest(least: float, others: int) -> float:
    """Seconds that background work pauses for one connection, while it pauses for so many others."""
    return min(least + EACH * others, LONGEST)


@dataclass(slots=True, eq=False)
class _Prewarmed:
    target: Target
    resting: Timer | None = None  # background work pauses for it until then
    begun: bool = False
    made: asyncio.Event = field(default_factory=asyncio.Event)
    sock: socket.socket | None = None

    def close(self) -> None:
        if self.sock is not None:
            self.sock.close()


class Prewarmer:
    def __init__(self, connect: Connect, clock: Clock, urgent: UrgentWork) -> None:
        self._connect = connect
        self._clock = clock
        self._urgent = urgent
        self._connections: dict[Target, _Prewarmed] = {}
        self._waiting: deque[_Prewarmed] = deque()
        self._news = asyncio.Semaphore(0)
        self._resting = 0

    @property
    def count(self) -> int:
        """Sandboxes that are connected to, or will be."""
        return len(self._connections)

    def changed(self, old: Sandbox | None, new: Sandbox | None) -> None:
        """Subscribes to the cache of sandboxes."""
        self._want(opened(old, new, self._clock.now()))

    def prewarm(self, member: Sandbox | None) -> None:
        """The sandbox is about to be handed over. If that fails, the connection is not used."""
        if member is not None:
            self._want(prewarm_target(member, self._clock.now()))

    def _want(self, target: Target | None) -> None:
        if target is not None and target not in self._connections and len(self._connections) < MOST:
            self._connections[target] = connection = _Prewarmed(target)
            self._waiting.append(connection)
            self._news.release()
            self._rest(connection, NEAR)

    async def take(self, target: Target) -> socket.socket | None:
        """The connection, if there is one or is being opened. The caller owns it."""
        connection = self._connections.get(target)
        if connection is None:
            return None
        if connection.begun:
            await connection.made.wait()
        if self._connections.get(target) is not connection:  # another request has taken it
            return None
        del self._connections[target]
        self._rest(connection, UNDER_WAY)
        if connection.sock is not None and not quiet(connection.sock):
            connection.close()
            return None
        return connection.sock

    async def run(self) -> None:
        """Runs until it is cancelled."""
        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(AT_ONCE):
                    group.create_task(self._work())
        finally:
            for connection in self._connections.values():
                connection.close()
            self._connections.clear()

    async def _work(self) -> None:
        while True:
            await self._news.acquire()
            connection = self._waiting.popleft()
            if self._connections.get(connection.target) is connection:
                await self._make(connection)
                if self._waiting:
                    await self._clock.sleep(PACE)

    async def _make(self, connection: _Prewarmed) -> None:
        connection.begun = True
        try:
            async with asyncio.timeout(PATIENCE):  # a sandbox that does not answer delays no other one
                connection.sock = await self._connect(connection.target)
        except (NoAnswer, OSError):
            pass  # the first request reports the cause
        except Exception as error:
            log.error("boxd could not be started early", exc=error, sandbox=connection.target.name)
        finally:
            connection.made.set()
            self._clock.call_later(KEPT, lambda: self._drop(connection))

    def _rest(self, connection: _Prewarmed, least: float) -> None:
        if connection.resting is not None:
            connection.resting.cancel()
        else:
            self._resting += 1
            self._urgent.began()
        connection.resting = self._clock.call_later(rest(least, self._resting - 1), lambda: self._calm(connection))

    def _calm(self, connection: _Prewarmed) -> None:
        connection.resting = None
        self._resting -= 1
        self._urgent.ended()

    def _drop(self, connection: _Prewarmed) -> None:
        if self._connections.get(connection.target) is connection:
            del self._connections[connection.target]
            connection.close()
