"""Keeps a cache equal to its server: lists once, then watches from there, for ever.

A watch that ends or breaks is resumed from the last revision that the cache has reached, so no event is lost and none is
applied twice. Gone means that this revision is compacted: list again. After a failure the reflector waits, with growing delays and jitter; the delays
start over once the watch has delivered something. Errors that are not an API server's end `run`: they are bugs, and the manager stops on them.
`catch_up` brings a cache to the present by one consistent list, beside its reflector.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from sandpool.base.backoff import Backoff
from sandpool.base.clock import Clock
from sandpool.base.errors import SandpoolError
from sandpool.kube.api import Api, Batched, Event, EventType
from sandpool.kube.errors import ApiError, BadRequest, ConfigError, Gone, Invalid, TooManyRequests, Unreachable
from sandpool.loop.cache import Cache
from sandpool.loop.outage import Outage
from sandpool.loop.outcome import unavailable
from sandpool.model.metadata import NO_REVISION, Key, Object, Revision
from sandpool.telemetry.log import logger
from sandpool.telemetry.metrics import Metrics

T = TypeVar("T", bound=Object)

log = logger(__name__)

PAGE = 250
"""Objects per page of a list."""
FIRST_PAUSE, LONGEST_PAUSE = 0.1, 5.0
"""Seconds between two tries of `catch_up_at_last`."""


@dataclass(frozen=True, slots=True)
class Scope:
    """The part of a resource to watch. It must match `holds` of the cache."""

    namespace: str = ""  # all of them
    labels: str = ""
    fields: str = ""


@dataclass(frozen=True, slots=True)
class Pace:
    """Delays and timeouts of a reflector."""

    page: int = PAGE  # objects per page of a list; 0 asks for all at once
    streaming: bool = False  # list by a watch with initial events, where the server can
    watch: float = 300.0  # seconds that a watch lasts, up to twice that, so that watches do not all end at once
    overdue: float = 30.0  # a watch that outlives its timeout by this many seconds is dead
    first: float = 0.2  # delay after a failure, doubling
    most: float = 30.0
    brief: float = 1.0  # a watch that ended sooner without an event counts as a failure


class Reflector(Generic[T]):
    """Runs one list and watch for one cache."""

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
        self.outage = Outage(clock.monotonic)  # may be replaced by one that is shared by all callers of a server
        self.last_contact = float(
            "-inf"
        )  # when the server last sent something about this resource, by the monotonic clock
        self._api = api
        self._resource = cache.resource
        self._clock = clock
        self._scope = scope
        self._pace = pace
        self._random = random
        self._streaming = pace.streaming
        self._listed = False
        self._healthy = False  # the watch under way has delivered something, or lasted
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
            except (ApiError, Unreachable, ConfigError) as error:  # ConfigError: credentials that cannot be renewed now
                failure = error
            await self._recover(failure)

    async def _recover(self, failure: Exception | None) -> None:
        """Waits before the next try; not at all after a watch that worked."""
        if isinstance(failure, Gone):
            self._listed = False
            self._healthy = self._lasted  # a few events do not make up for another list
        if isinstance(failure, (BadRequest, Invalid)) and self._streaming:
            self._streaming = False  # this server does not support streaming lists
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
        items, revision = await _list_all(self._api, self.cache, self._scope, self._pace.page, self.cache.keep)
        self._fill(items, revision)

    async def _watch(self) -> None:
        """One watch, until it ends. With streaming, its first part is the list."""
        lasts = self._pace.watch * (1 + self._random())
        # For a server, a watch since 0 means "any state first", in any order: so an empty store is listed by the watch as well.
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
        """Applies events to the cache; during a streaming list, collects its items."""
        self.last_contact = self._clock.monotonic()
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
        """Returns the events after the list, and the items while the list is not complete."""
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
        self.last_contact = self._clock.monotonic()
        self.cache.replace(items, revision)
        self._listed = True
        self._lists.inc()
        if self.trouble is not None:
            self._works()

    def _works(self) -> None:
        """The resource can be read again."""
        self.trouble = None
        self.outage.end()


async def catch_up_at_last(api: Api, cache: Cache[T], clock: Clock, namespace: str = "") -> None:
    """As `catch_up`, retried until it succeeds: a server that is busy for a moment is no reason to give up leadership."""
    pauses: Backoff[None] = Backoff(FIRST_PAUSE, LONGEST_PAUSE)
    while True:
        try:
            return await catch_up(api, cache, namespace)
        except SandpoolError as error:
            pause = pauses.next(None)
            log.warning("not caught up yet", resource=cache.resource.plural, error=repr(error), again_in=pause)
            await clock.sleep(pause)


async def catch_up(api: Api, cache: Cache[T], namespace: str = "", page: int = PAGE) -> None:
    """Brings the cache (of all namespaces, or of one) to the present by a consistent list, which is dropped if the watch has come past it
    meanwhile. A new leader does that before its controllers start."""
    items, revision = await _list_all(api, cache, Scope(namespace), page, lambda item: _known(cache, item))
    if revision >= cache.revision:
        cache.replace(items, revision)


async def _list_all(
    api: Api, cache: Cache[T], scope: Scope, limit: int, keep: Callable[[T], T]
) -> tuple[list[T], Revision]:
    """All objects, in pages of `limit`. `keep` runs page by page: the whole objects may need more memory than there is."""
    try:
        return await _pages(api, cache, scope, limit, keep)
    except Gone:  # the snapshot was compacted between two pages: ask for it in one piece
        return await _pages(api, cache, scope, 0, keep)


async def _pages(
    api: Api, cache: Cache[T], scope: Scope, limit: int, keep: Callable[[T], T]
) -> tuple[list[T], Revision]:
    items: list[T] = []
    after = ""
    while True:
        page = await api.list(
            cache.resource, scope.namespace, labels=scope.labels, fields=scope.fields, limit=limit, after=after
        )
        items += map(keep, page.items)
        after = page.after
        if not after:
            return items, page.revision


def _known(cache: Cache[T], item: T) -> T:
    """The object that the cache already has of this very revision, which is nearly always the case: two copies of everything would take
    twice the memory."""
    meta, known = item.metadata, cache.get(item.metadata.key)
    if known is not None:
        its = known.metadata
        if its.resource_version == meta.resource_version and its.uid == meta.uid:
            return known
    return cache.keep(item)
