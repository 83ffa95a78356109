"""Answers that must end when nobody listens any more, even while they have nothing to say."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import suppress


class Gone(asyncio.Event):
    """Set when the client has hung up. Whoever waits for something else as well has itself called, which costs no task."""

    def __init__(self) -> None:
        super().__init__()
        self._calls: list[Callable[[], object]] = []

    def call(self, what: Callable[[], object]) -> None:
        self._calls.append(what)

    def forget(self, what: Callable[[], object]) -> None:
        self._calls.remove(what)

    def set(self) -> None:
        super().set()
        for what in tuple(self._calls):
            what()


async def until_gone(source: AsyncGenerator[bytes, None], gone: asyncio.Event) -> AsyncGenerator[bytes, None]:
    """The source, cut off when the client hangs up, also while the source has nothing to say."""
    hung_up = asyncio.ensure_future(gone.wait())
    coming: asyncio.Future[bytes] | None = None
    try:
        while True:
            coming = asyncio.ensure_future(anext(source))
            await asyncio.wait((coming, hung_up), return_when=asyncio.FIRST_COMPLETED)
            if not coming.done():
                raise ConnectionResetError("the client hung up")
            try:
                piece = coming.result()
            except StopAsyncIteration:
                return
            yield piece
    finally:
        hung_up.cancel()
        if coming is not None and not coming.done():
            coming.cancel()
            with suppress(asyncio.CancelledError):
                await coming
        await source.aclose()
