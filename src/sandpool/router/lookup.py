"""Sandboxes by name, from a cache that somebody else keeps.

A cache runs a little behind its server: who has just been told that a claim is Ready may ask here before the news has come.
With `patience`, an answer that the next news may change waits for it, that long at most.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import TypeVar

from sandpool.base.clock import Clock
from sandpool.loop.cache import Cache
from sandpool.loop.index import namespace_of
from sandpool.model.metadata import Key
from sandpool.model.sandbox import Sandbox
from sandpool.router.refusals import Refusal, unavailable

T = TypeVar("T")

MOST_WAITING = 1024
"""Requests that wait for news at once; others are answered from what is known."""


class Directory:
    """One cache of all namespaces, or one for each that is served."""

    def __init__(
        self, sandboxes: Cache[Sandbox] | Mapping[str, Cache[Sandbox]], clock: Clock, patience: float = 0.0
    ) -> None:
        self._caches = {"": sandboxes} if isinstance(sandboxes, Cache) else dict(sandboxes)
        self._clock = clock
        self._patience = patience
        self._namespaces = [cache.index(namespace_of) for cache in self._caches.values()]
        self._waiting: dict[Key, set[asyncio.Event]] = {}
        self._count = 0
        if patience > 0:
            for cache in self._caches.values():
                cache.subscribe(self._changed)

    def holds(self, namespace: str) -> bool:
        """Whether there is a sandbox in it."""
        return any(index.count(namespace) for index in self._namespaces)

    async def judged(self, key: Key, judge: Callable[[Sandbox | None], T | Refusal]) -> T | Refusal:
        """What `judge` says of the sandbox under a name."""
        cache = self._caches.get("", self._caches.get(key.namespace))
        if cache is None:
            return judge(None)  # nobody here looks there
        if not cache.synced.is_set():
            return unavailable("the router has not heard of any sandbox yet; try again in a moment")
        found = judge(cache.get(key))
        deadline = self._clock.monotonic() + self._patience
        while isinstance(found, Refusal) and found.passing:
            left = deadline - self._clock.monotonic()
            if left <= 0 or self._count >= MOST_WAITING or not await self._news(key, left):
                break
            found = judge(cache.get(key))
        return found

    async def _news(self, key: Key, seconds: float) -> bool:
        """Whether something about this name was heard in time."""
        news = asyncio.Event()
        self._waiting.setdefault(key, set()).add(news)
        self._count += 1
        try:
            async with asyncio.timeout(seconds):
                await news.wait()
            return True
        except TimeoutError:
            return False
        finally:
            self._count -= 1
            waiting = self._waiting[key]
            waiting.discard(news)
            if not waiting:
                del self._waiting[key]

    def _changed(self, old: Sandbox | None, new: Sandbox | None) -> None:
        either = new or old
        if either is not None and self._waiting:
            for news in self._waiting.get(either.metadata.key, ()):
                news.set()
