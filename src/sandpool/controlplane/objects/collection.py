"""Deletes many objects, page by page: other requests get a turn before each page."""

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
"""The cost of one object in addition to its size, in the bytes that base/turns.py counts."""
Turn = Callable[[int], Awaitable[None]]
"""Waits for a turn of that many bytes of work."""


def pages(records: Sequence[Record]) -> Iterator[tuple[int, Sequence[Record]]]:
    """Splits records into pages of one turn each, and yields each with its cost: as many records as fit, or a single larger one."""
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
    """Deletes the listed objects. Those that are already gone are skipped."""
    for size, page in pages(records):
        await turn(size)
        await asyncio.gather(*(_delete(objects, resource, record, options) for record in page))


async def _delete(objects: Objects, resource: AnyResource, record: Record, options: DeleteOptions) -> None:
    metadata = decode(record)["metadata"]
    try:
        await objects.delete(resource, metadata.get("namespace", ""), metadata["name"], options)
    except NotFound:
        pass  # another client was faster
