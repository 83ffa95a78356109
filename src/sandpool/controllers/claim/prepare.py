"""What a new leader does first: it reads all claims, and then all sandboxes, as the server has them now.

In that order, whatever a predecessor handed out for a claim that we know of is known as well: no claim is given a second sandbox.
"""

from __future__ import annotations

from typing import TypeVar

from sandpool.base.backoff import Backoff
from sandpool.base.clock import Clock
from sandpool.base.errors import SandpoolError
from sandpool.kube.api import Api
from sandpool.kube.errors import Gone
from sandpool.loop.cache import Cache
from sandpool.model.metadata import Object, Revision
from sandpool.telemetry.log import logger

T = TypeVar("T", bound=Object)

log = logger(__name__)

PAGE = 250
FIRST_PAUSE, LONGEST_PAUSE = 0.1, 5.0


async def catch_up_at_last(api: Api, cache: Cache[T], clock: Clock, namespace: str = "") -> None:
    """Until it works: a server that is busy just now is no reason for a leader to go."""
    pauses: Backoff[None] = Backoff(FIRST_PAUSE, LONGEST_PAUSE)
    while True:
        try:
            return await catch_up(api, cache, namespace)
        except SandpoolError as error:
            pause = pauses.next(None)
            log.warning("not caught up yet", resource=cache.resource.plural, error=repr(error), again_in=pause)
            await clock.sleep(pause)


async def catch_up(api: Api, cache: Cache[T], namespace: str = "", page: int = PAGE) -> None:
    """Brings the cache (of all namespaces, or of one) to the present. Where its watch has come past the list meanwhile, that is better still."""
    try:
        items, revision = await _pages(api, cache, namespace, page)
    except Gone:  # the snapshot was forgotten between two pages: take it whole
        items, revision = await _pages(api, cache, namespace, 0)
    if revision >= cache.revision:
        cache.replace(items, revision)


async def _pages(api: Api, cache: Cache[T], namespace: str, limit: int) -> tuple[list[T], Revision]:
    items: list[T] = []
    after = ""
    while True:
        part = await api.list(cache.resource, namespace, limit=limit, after=after)
        items += [_known(cache, item) for item in part.items]
        after = part.after
        if not after:
            return items, part.revision


def _known(cache: Cache[T], item: T) -> T:
    """What the cache already has of this very state, which is nearly always: two whole lists would take twice the room."""
    meta, known = item.metadata, cache.get(item.metadata.key)
    if known is not None:
        its = known.metadata
        if its.resource_version == meta.resource_version and its.uid == meta.uid:
            return known
    return cache.keep(item)
