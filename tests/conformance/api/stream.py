"""Reading a watch in a test: so many events, and not for longer than a test may take."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import TypeVar

from sandpool.kube.api import Event, EventType
from sandpool.model.metadata import Object

T = TypeVar("T", bound=Object)
PATIENCE = 20.0


async def take(events: AsyncIterator[Event[T]], count: int) -> list[Event[T]]:
    """The next `count` events that are not bookmarks."""
    taken: list[Event[T]] = []
    async with asyncio.timeout(PATIENCE):
        while len(taken) < count:
            event = await anext(events)
            if event.type is not EventType.BOOKMARK:
                taken.append(event)
    return taken


async def initial(events: AsyncIterator[Event[T]]) -> tuple[list[Event[T]], Event[T]]:
    """The initial events of a streaming list and the bookmark that ends them."""
    taken: list[Event[T]] = []
    async with asyncio.timeout(PATIENCE):
        while True:
            event = await anext(events)
            if event.initial_done:
                return taken, event
            if event.type is not EventType.BOOKMARK:
                taken.append(event)


async def rest(events: AsyncIterator[Event[T]]) -> list[Event[T]]:
    """All events until the watch ends by itself."""
    async with asyncio.timeout(PATIENCE):
        return [event async for event in events]


def said(events: list[Event[T]]) -> list[tuple[str, str]]:
    """Types and names, which is what most tests are about."""
    return [(event.type.value, event.object.metadata.name if event.object is not None else "") for event in events]
