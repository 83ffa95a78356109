"""A hollow backend whose containers answer when they are asked: a test says how, for each container and command."""

from __future__ import annotations

import asyncio
import socket
from collections import Counter
from collections.abc import Callable

from sandpool.base.clock import Clock
from sandpool.model.metadata import Uid
from sandpool.node.backend import BackendError, Command, Exit, Streams
from sandpool.node.runtimes.fake import FakeBackend, FakeOptions

QUICK = FakeOptions(start=(0.1, 0.1), ready=(0.1, 0.1), stop=(0.1, 0.1))


class AnsweringBackend(FakeBackend):
    """`codes` are exit codes by the first word of a command, or functions of how often it was asked before. `slow` are
    seconds that a command takes. `listening` are open ports."""

    def __init__(self, clock: Clock, options: FakeOptions = QUICK, *, revives: bool = True) -> None:
        super().__init__(clock, options)
        self.revives = revives
        self.codes: dict[str, int | Callable[[int], int]] = {}
        self.slow: dict[str, float] = {}
        self.listening: set[int] = set()
        self.asked: Counter[str] = Counter()
        self.at: list[tuple[float, str]] = []
        self.ended: list[tuple[str, float]] = []
        self.stopped: list[float] = []
        self.now_asked, self.most_asked = 0, 0
        self.cancelled = 0

    async def exec(self, uid: Uid, container: str, command: Command, streams: Streams) -> Exit:
        self._container(self._known(uid), container)
        word = command.argv[0]
        before = self.asked[word]
        self.asked[word] += 1
        self.at.append((self._clock.monotonic(), word))
        self.now_asked += 1
        self.most_asked = max(self.most_asked, self.now_asked)
        try:
            await asyncio.sleep(self.slow.get(word, 0.0))
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        finally:
            self.now_asked -= 1
        if word not in self.codes:
            raise BackendError("StartError", f"{word}: not found")
        code = self.codes[word]
        code = code(before) if callable(code) else code
        if code:
            await streams.write(1, b"it says \x1b[31mno\n")
        return Exit(code, self._clock.now())

    async def dial(self, uid: Uid, port: int) -> socket.socket:
        self._known(uid)
        self.asked[str(port)] += 1
        if port not in self.listening:
            raise BackendError("ConnectionRefused", f"nobody listens on port {port}")
        ours, theirs = socket.socketpair()
        theirs.close()
        ours.setblocking(False)
        return ours

    async def stop_container(self, uid: Uid, container: str, grace: float) -> None:
        self.ended.append((container, grace))
        await super().stop_container(uid, container, grace)

    async def stop_pod(self, uid: Uid, grace: float) -> None:
        self.stopped.append(grace)
        await super().stop_pod(uid, grace)
