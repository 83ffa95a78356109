"""Who a token of the API server belongs to, and what they may use: asked once, remembered for a moment.

Tokens are remembered by their SHA-256 only. What was remembered is bounded in number and in time; a failure to ask is not
remembered. Requests that wait for the same answer ask once, and only so many questions are under way at a time.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar

from sandpool.base.clock import Clock
from sandpool.router.ports import Authority, Caller

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

LONGEST_TOKEN = 16384
_TOKEN = re.compile(r"[A-Za-z0-9._~+/=:-]+")


@dataclass(frozen=True, slots=True)
class Memory:
    yes: float = 10.0  # seconds
    no: float = 3.0
    most: int = 4096  # of each kind
    asked: int = 16  # questions at once


class Callers:
    def __init__(self, authority: Authority, clock: Clock, memory: Memory = Memory()) -> None:
        self._authority = authority
        asking = asyncio.Semaphore(memory.asked)
        self._known: _Recall[bytes, Caller | None] = _Recall(clock, memory, asking)
        self._rights: _Recall[tuple[Caller, str], bool] = _Recall(clock, memory, asking)

    async def who(self, token: str) -> Caller | None:
        if len(token) > LONGEST_TOKEN or _TOKEN.fullmatch(token) is None:
            return None
        digest = hashlib.sha256(token.encode()).digest()
        return await self._known.get(digest, lambda: self._authority.caller(token))

    async def may_use(self, caller: Caller, namespace: str) -> bool:
        return await self._rights.get((caller, namespace), lambda: self._authority.may_use(caller, namespace))


class _Recall(Generic[K, V]):
    """Answers by key, the longest unused forgotten first."""

    def __init__(self, clock: Clock, memory: Memory, asking: asyncio.Semaphore) -> None:
        self._clock = clock
        self._memory = memory
        self._asking = asking
        self._answers: dict[K, tuple[V, float]] = {}
        self._turns: dict[K, _Turn] = {}

    async def get(self, key: K, ask: Callable[[], Awaitable[V]]) -> V:
        known = self._recalled(key)
        if known is not None:
            return known[0]
        turn = self._turns.setdefault(key, _Turn())
        turn.waiting += 1
        try:
            async with turn.lock:
                known = self._recalled(key)  # somebody else has asked meanwhile
                if known is not None:
                    return known[0]
                async with self._asking:
                    answer = await ask()
                self._remember(key, answer)
                return answer
        finally:
            turn.waiting -= 1
            if not turn.waiting:
                del self._turns[key]

    def _recalled(self, key: K) -> tuple[V, float] | None:
        found = self._answers.pop(key, None)
        if found is None or found[1] <= self._clock.monotonic():
            return None
        self._answers[key] = found  # now the newest
        return found

    def _remember(self, key: K, answer: V) -> None:
        lasts = self._memory.yes if answer else self._memory.no
        while len(self._answers) >= self._memory.most:
            del self._answers[next(iter(self._answers))]
        self._answers[key] = (answer, self._clock.monotonic() + lasts)


class _Turn:
    __slots__ = ("lock", "waiting")

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.waiting = 0
