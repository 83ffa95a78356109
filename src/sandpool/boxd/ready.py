"""Waits until a descriptor is readable or writable."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any


async def readable(file: Any) -> None:
    loop = asyncio.get_running_loop()
    await _ready(file, loop.add_reader, loop.remove_reader)


async def writable(file: Any) -> None:
    loop = asyncio.get_running_loop()
    await _ready(file, loop.add_writer, loop.remove_writer)


async def _ready(file: Any, add: Callable[..., object], remove: Callable[..., object]) -> None:
    ready = asyncio.get_running_loop().create_future()

    def wake() -> None:
        if not ready.done():
            ready.set_result(None)

    add(file, wake)
    try:
        await ready
    finally:
        remove(file)
