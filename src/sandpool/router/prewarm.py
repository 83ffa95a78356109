"""Connections to boxd that are made before anybody asks for one: when a sandbox becomes somebody's, its first command is near.

boxd gets to work with its first connection, and that costs more than the rest of a small request. Done here, it happens while the
claim is still on its way back to whoever made it, and until the command runs the pool's refill rests. Nothing depends on it: what
is not made in time, or fails, is made by the first request as ever.
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
from sandpool.loop.rush import Rush
from sandpool.model.claim import SandboxClaim
from sandpool.model.labels import EXTENSIONS
from sandpool.model.sandbox import Sandbox
from sandpool.router.directory import find, pooled
from sandpool.router.ports import NoAnswer, Target
from sandpool.telemetry.log import logger

log = logger(__name__)

AT_ONCE = 4
"""Sandboxes that are being connected to at the same time; the rest waits its turn."""
PACE = 0.01
"""Seconds from one to the next of each of them, where more wait: about what one core can start, so that claims keep theirs."""
MOST = 256
"""Connections that are kept or wanted; beyond it the first request makes its own."""
PATIENCE = 5.0
"""Seconds for one connection."""
KEPT = 10.0
"""Seconds for the first request to come. Then the connection is closed; boxd stays."""
NEAR = 0.05
"""Seconds that background work rests for while the first command is expected."""
UNDER_WAY = 0.02
"""Seconds that it rests for after the first command was passed on: the event loop then is free for what it says."""
EACH = 0.005
"""Seconds more for each other sandbox that is waited for at the same time: they share the machine."""
LONGEST = 0.5
"""Seconds of rest at most."""

Connect = Callable[[Target], Awaitable[socket.socket]]


def opened(old: Sandbox | None, new: Sandbox | None, now: datetime) -> Target | None:
    """The sandbox, if with this change a claim's owner can be let in who could not before."""
    owner = None if new is None else new.metadata.controller
    if old is None or new is None or owner is None or (owner.group, owner.kind) != (EXTENSIONS, SandboxClaim.kind):
        return None
    key, uid = new.metadata.key, new.metadata.uid
    after = find(new, key, uid, now)
    return after if isinstance(after, Target) and not isinstance(find(old, key, uid, now), Target) else None


def foreseen(member: Sandbox, now: datetime) -> Target | None:
    """What a pool's member will be for whoever is being given it, if it can be used at once."""
    if not pooled(member):
        return None
    free = replace(member, metadata=replace(member.metadata, owner_references=()))
    found = find(free, member.metadata.key, member.metadata.uid, now)
    return found if isinstance(found, Target) else None


def rest(least: float, others: int) -> float:
    """Seconds that background work rests for one line, while it rests for so many others."""
    return min(least + EACH * others, LONGEST)


@dataclass(slots=True, eq=False)
class _Line:
    target: Target
    resting: Timer | None = None  # background work rests for it until then
    begun: bool = False
    made: asyncio.Event = field(default_factory=asyncio.Event)
    sock: socket.socket | None = None

    def close(self) -> None:
        if self.sock is not None:
            self.sock.close()


class EarlyLines:
    def __init__(self, connect: Connect, clock: Clock, rush: Rush) -> None:
        self._connect = connect
        self._clock = clock
        self._rush = rush
        self._lines: dict[Target, _Line] = {}
        self._waiting: deque[_Line] = deque()
        self._news = asyncio.Semaphore(0)
        self._resting = 0

    def changed(self, old: Sandbox | None, new: Sandbox | None) -> None:
        """Subscribes to the cache of sandboxes."""
        self._want(opened(old, new, self._clock.now()))

    def foresee(self, member: Sandbox | None) -> None:
        """It is about to be handed over. If that fails, it has been connected to in vain."""
        if member is not None:
            self._want(foreseen(member, self._clock.now()))

    def _want(self, target: Target | None) -> None:
        if target is not None and target not in self._lines and len(self._lines) < MOST:
            self._lines[target] = line = _Line(target)
            self._waiting.append(line)
            self._news.release()
            self._rest(line, NEAR)

    async def take(self, target: Target) -> socket.socket | None:
        """The connection, if there is one or will be in a moment. It is the caller's."""
        line = self._lines.get(target)
        if line is None:
            return None
        if line.begun:
            await line.made.wait()
        if self._lines.get(target) is not line:  # somebody else has it
            return None
        del self._lines[target]
        self._rest(line, UNDER_WAY)
        if line.sock is not None and not _quiet(line.sock):
            line.close()
            return None
        return line.sock

    async def run(self) -> None:
        """Until it is cancelled."""
        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(AT_ONCE):
                    group.create_task(self._work())
        finally:
            for line in self._lines.values():
                line.close()
            self._lines.clear()

    async def _work(self) -> None:
        while True:
            await self._news.acquire()
            line = self._waiting.popleft()
            if self._lines.get(line.target) is line:
                await self._make(line)
                if self._waiting:
                    await self._clock.sleep(PACE)

    async def _make(self, line: _Line) -> None:
        line.begun = True
        try:
            async with asyncio.timeout(PATIENCE):  # a sandbox that does not answer holds up no other one
                line.sock = await self._connect(line.target)
        except (NoAnswer, OSError):
            pass  # whoever asks hears why
        except Exception as error:
            log.error("boxd could not be started early", exc=error, sandbox=line.target.name)
        finally:
            line.made.set()
            self._clock.call_later(KEPT, lambda: self._drop(line))

    def _rest(self, line: _Line, least: float) -> None:
        if line.resting is not None:
            line.resting.cancel()
        else:
            self._resting += 1
            self._rush.began()
        line.resting = self._clock.call_later(rest(least, self._resting - 1), lambda: self._calm(line))

    def _calm(self, line: _Line) -> None:
        line.resting = None
        self._resting -= 1
        self._rush.ended()

    def _drop(self, line: _Line) -> None:
        if self._lines.get(line.target) is line:
            del self._lines[line.target]
            line.close()


def _quiet(sock: socket.socket) -> bool:
    """Open, and nothing came on it."""
    try:
        sock.recv(1, socket.MSG_PEEK)
    except BlockingIOError:
        return True
    except OSError:
        pass
    return False
