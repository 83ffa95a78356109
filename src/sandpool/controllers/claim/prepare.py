"""What a new leader does first: it reads all claims, and then all sandboxes, as the server has them now.

In that order, whatever a predecessor handed out for a claim that we know of is known as well: no claim is given a second sandbox.
"""

from __future__ import annotations

from typing import TypeVar

from sandpool.kube.api import Api
from sandpool.kube.errors import Gone
from sandpool.loop.cache import Cache
from sandpool.model.metadata import Object, Revision

T = TypeVar("T", bound=Object)

PAGE = 500


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
        items += part.items
        after = part.after
        if not after:
            return items, part.revision
