"""Keeps a cache as its server is: list once, then watch from there, for ever.

A watch that ends or breaks is resumed from the last revision that the cache has reached, so no event is lost and none is
applied twice. Gone means that this revision is forgotten: list again. Failures are followed by delays, longer each time,
spread by jitter, and short again once the watch has said something. Errors that are not an API server's end `run`: they are bugs, and the manager stops on them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from sandpool.base.backoff import Backoff
from sandpool.base.clock import Clock
from sandpool.kube.api import Api, Batched, Event, EventType, Page
from sandpool.kube.errors import ApiError, BadRequest, ConfigError, Gone, Invalid, TooManyRequests, Unreachable
from sandpool.loop.cache import Cache
from sandpool.loop.outage import Outage
from sandpool.loop.outcome import unavailable
from sandpool.model.metadata import NO_REVISION, Key, Object, Revision
from sandpool.telemetry.log import logger
from sandpool.telemetry.metrics import Metrics

T = TypeVar("T", bound=Object)

log = logger(__name__)


@dataclass(frozen=True, slots=True)
class Scope:
    """What part of a resource to follow. The cache's own `holds` must say the same."""

    namespace: str = ""  # all of them
    labels: str = ""
    fields: str = ""


@dataclass(frozen=True, slots=True)
class Pace:
    page: int = 250  # objects per page of a list, which is more in memory than is kept of it; 0 asks for all at once
    streaming: bool = False  # list by a watch with initial events, where the server can
    watch: float = 300.0  # a watch lasts this long, up to twice, so that watches do not end all at once
    overdue: float = 30.0  # a watch that outlives its own end by this much is dead
    first: float = 0.2  # delay after a failure, doubling
    most: float = 30.0
    brief: float = 1.0  # a watch that ended sooner, with nothing to say, counts as a failure


class Reflector(Generic[T]):
    def __init__(
        self,
        api: Api,
        cache: Cache[T],
        clock: Clock,
        metrics: Metrics,
        random: Callable[[], float],
        scope: Scope = Scope(),
        pace: Pace = Pace(),
    ) -> None:
        self.cache = cache
        self.trouble: Exception | None = None  # the last failure, until something works again
        self.outage = Outage(clock.monotonic)  # or one that is shared with others who call the same server
        self.heard = float("-inf")  # when the server last said something about this resource, by the monotonic clock
        self._api = api
        self._resource = cache.resource
        self._clock = clock
        self._scope = scope
        self._pace = pace
        self._random = random
        self._streaming = pace.streaming
        self._listed = False
        self._healthy = False  # the watch under way has brought us further, or lasted
        self._lasted = False
        self._failures: Backoff[None] = Backoff(pace.first, pace.most, jitter=0.5, random=random)
        label = cache.resource.group_resource
        metrics.cache_objects.labels(label).set_function(lambda: len(cache))
        self._lists = metrics.cache_lists.labels(label)
        self._failed = metrics.cache_failures.labels(label)

    @property
    def name(self) -> str:
        where = f" in namespace {self._scope.namespace}" if self._scope.namespace else ""
        return f"{self._resource.group_resource}{where}"

    async def run(self) -> None:
        while True:
            self._healthy = self._lasted = False
            try:
                if not self._listed and not self._streaming:
                    await self._list()
                await self._watch()
                failure = None
            except (ApiError, Unreachable, ConfigError) as error:  # the last: credentials that cannot be renewed now
                failure = error
            await self._recover(failure)

    async def _recover(self, failure: Exception | None) -> None:
        """Decides how to go on: at once after something worked, else after a delay."""
        if isinstance(failure, Gone):
            self._listed = False
            self._healthy = self._lasted  # a few events between two lists are no progress worth a list
        if isinstance(failure, (BadRequest, Invalid)) and self._streaming:
            self._streaming = False  # this server knows no streaming lists
            return
        if failure is not None and not isinstance(failure, Gone):
            self.trouble = failure
            self._failed.inc()
            if unavailable(failure) is not None:
                self.outage.failed(failure)
                log.debug("watch cut off", resource=self.name, error=f"{type(failure).__name__}: {failure}")
            else:
                log.warning("watch failed", resource=self.name, error=f"{type(failure).__name__}: {failure}")
        if self._healthy:
            self._failures.forget(None)
            if failure is None or isinstance(failure, Gone):
                return
        delay = self._failures.next(None)
        if isinstance(failure, TooManyRequests) and failure.retry_after:
            delay = max(delay, float(failure.retry_after))
        await self._clock.sleep(delay)

    async def _list(self) -> None:
        try:
            items, page = await self._pages(self._pace.page)
        except Gone:  # the snapshot was forgotten between two pages: take it whole
            items, page = await self._pages(0)
        self._fill(items, page.revision)

    async def _pages(self, limit: int) -> tuple[list[T], Page[T]]:
        items: list[T] = []
        after = ""
        while True:
            page = await self._api.list(
                self._resource,
                self._scope.namespace,
                labels=self._scope.labels,
                fields=self._scope.fields,
                limit=limit,
                after=after,
            )
            items += map(self.cache.keep, page.items)  # page by page: the whole may be more than there is room for
            after = page.after
            if not after:
                return items, page

    async def _watch(self) -> None:
        """One watch, until it ends. With streaming, its first part is the list."""
        lasts = self._pace.watch * (1 + self._random())
        # To a server, a watch since 0 means "any state first", in any order: an empty store is listed by the watch as well.
        resumes = self._listed and self.cache.revision > NO_REVISION
        initial: dict[Key, T] | None = None if resumes else {}
        began = self._clock.monotonic()
        try:
            async with (
                asyncio.timeout(lasts + self._pace.overdue),
                self._api.watch(
                    self._resource,
                    self._scope.namespace,
                    labels=self._scope.labels,
                    fields=self._scope.fields,
                    since=self.cache.revision if resumes else None,
                    initial=not resumes,
                    timeout=lasts,
                ) as events,
            ):
                if isinstance(events, Batched):
                    while batch := await events.batch():
                        initial = self._take(batch, initial)
                else:
                    async for event in events:
                        initial = self._take((event,), initial)
        except TimeoutError:
            log.warning("watch is dead", resource=self.name, after=lasts + self._pace.overdue)
        finally:
            if self._clock.monotonic() - began >= self._pace.brief:
                self._healthy = self._lasted = True

    def _take(self, events: Sequence[Event[T]], initial: dict[Key, T] | None) -> dict[Key, T] | None:
        """Into the cache; before the end of a streaming list, into its items."""
        self.heard = self._clock.monotonic()
        if initial is not None:
            events, initial = self._take_initial(events, initial)
        if events:
            self._healthy = self._healthy or events[-1].revision > self.cache.revision
            self.cache.apply_all(events)
            if self.trouble is not None:
                self._works()
        return initial

    def _take_initial(
        self, events: Sequence[Event[T]], initial: dict[Key, T]
    ) -> tuple[Sequence[Event[T]], dict[Key, T] | None]:
        """The answer is what came after the list, and the list as long as it is not complete."""
        for number, event in enumerate(events, 1):
            if event.initial_done:
                self._fill(initial.values(), event.revision)
                return events[number:], None
            if event.object is not None:
                key = event.object.metadata.key
                if event.type is EventType.DELETED:
                    initial.pop(key, None)
                else:
                    initial[key] = event.object
        return (), initial

    def _fill(self, items: Iterable[T], revision: Revision) -> None:
        if revision < self.cache.revision:
            log.warning("server went back", resource=self.name, known=self.cache.revision, now=revision)
        self.heard = self._clock.monotonic()
        self.cache.replace(items, revision)
        self._listed = True
        self._lists.inc()
        if self.trouble is not None:
            self._works()

    def _works(self) -> None:
        """Again."""
        self.trouble = None
        self.outage.end()
