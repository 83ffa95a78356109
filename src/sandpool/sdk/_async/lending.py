"""Which connection a sandbox uses: the one that it is given, one of its own, or the one that all others share.

The shared one lasts as long as the program (or, asynchronously, its event loop): whoever claims one sandbox after the other
pays for connections once. It leads where the configuration says now: if that changes, those who have the old one keep it, and
the last of them closes it.
"""

from __future__ import annotations

import threading

from sandpool.sdk._async.connection import AsyncConnection
from sandpool.sdk._async.meeting import Common
from sandpool.sdk.config import Config, resolve_here


class Loan:
    """A connection, until `end`."""

    def __init__(self, connection: AsyncConnection, lender: Lender | None = None, *, own: bool = False) -> None:
        self.connection = connection
        self._lender = lender
        self._own = own

    async def end(self) -> None:
        """Once more does nothing."""
        lender, self._lender = self._lender, None
        own, self._own = self._own, False
        if lender is not None:
            await lender.take_back(self.connection)
        if own:
            await self.connection.close()


class Lender:
    def __init__(self) -> None:
        self._lock = threading.Lock()  # never held while waiting
        self._current: AsyncConnection | None = None
        self._users: dict[AsyncConnection, int] = {}

    async def lend(self) -> Loan:
        resolved = resolve_here(None)
        old = None
        with self._lock:
            current = self._current
            if current is None or current.resolved != resolved:
                old, current = current, AsyncConnection(resolved=resolved)
                self._current = current
                if old is not None and self._users.get(old):
                    old = None  # those who use it close it
            self._users[current] = self._users.get(current, 0) + 1
        if old is not None:
            await old.close()
        return Loan(current, self)

    async def take_back(self, connection: AsyncConnection) -> None:
        with self._lock:
            self._users[connection] -= 1
            unused = not self._users[connection]
            if unused:
                del self._users[connection]
            closed = unused and connection is not self._current
        if closed:
            await connection.close()

    async def close(self) -> None:
        with self._lock:
            current, self._current = self._current, None
            left = {*self._users, *([current] if current is not None else [])}
        for connection in left:
            await connection.close()


_SHARED = Common(Lender)


async def borrow(connection: AsyncConnection | None, config: Config | None) -> Loan:
    if connection is not None:
        return Loan(connection)
    if config is not None:
        return Loan(AsyncConnection(config), own=True)
    return await (await _SHARED.here()).lend()
