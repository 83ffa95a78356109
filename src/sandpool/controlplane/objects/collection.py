"""Deletes of many objects, a page after the other: others have their turn before each."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Final

from sandpool.base.turns import BYTES
from sandpool.controlplane.objects.document import decode
from sandpool.controlplane.objects.objects import AnyResource, Objects
from sandpool.controlplane.objects.options import DeleteOptions
from sandpool.controlplane.store.record import Record
from sandpool.kube.errors import NotFound

EACH: Final = 1024
"""Bytes that work with one object counts beside those of the object."""
Turn = Callable[[int], Awaitable[None]]
"""Waits until so many bytes may be worked through."""


def pages(records: Sequence[Record]) -> Iterator[tuple[int, Sequence[Record]]]:
    """What is worked through in one turn, and how much that is: as many as fit, or one that is larger."""
    start = size = 0
    for index, record in enumerate(records):
        more = len(record.value) + EACH
        if size and size + more > BYTES:
            yield size, records[start:index]
            start, size = index, 0
        size += more
    if size:
        yield size, records[start:]


async def delete_each(
    objects: Objects, resource: AnyResource, records: Sequence[Record], options: DeleteOptions, turn: Turn
) -> None:
    """Deletes what was listed, as the options say."""
    for size, page in pages(records):
        await turn(size)
        await asyncio.gather(*(_delete(objects, resource, record, options) for record in page))


async def _delete(objects: Objects, resource: AnyResource, record: Record, options: DeleteOptions) -> None:
    metadata = decode(record)["metadata"]
    try:
        await objects.delete(resource, metadata.get("namespace", ""), metadata["name"], options)
    except NotFound:
        pass  # somebody else was faster
