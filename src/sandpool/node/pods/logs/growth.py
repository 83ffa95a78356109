"""Tells readers that a log has grown, or is over. On the event loop."""

from __future__ import annotations

import asyncio


class Growth:
    def __init__(self) -> None:
        self._next: asyncio.Future[None] | None = None
        self.over = False

    def grew(self) -> None:
        if self._next is not None and not self._next.done():
            self._next.set_result(None)
        self._next = None

    def end(self) -> None:
        self.over = True
        self.grew()

    def next(self) -> asyncio.Future[None]:
        """Done when the log grows once more. Ask before you read, so that nothing is missed in between."""
        if self._next is None:
            self._next = asyncio.get_running_loop().create_future()
            if self.over:
                self._next.set_result(None)
        return self._next
