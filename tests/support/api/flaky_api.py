"""An Api around another one in which a test decides, call by call, what goes wrong; it also remembers what was called."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from sandpool.kube.api import Api, Call
from sandpool.kube.interceptors import Interceptor

Hook = Callable[[str, str], Awaitable[None]]
"""Called with the verb and the plural of the resource."""


async def nothing(verb: str, plural: str) -> None:
    return None


class FlakyApi(Interceptor):
    """`before` runs ahead of each call: raising there means that the request never reached the server. `after` runs once
    the server has processed it: raising there loses the answer. Either may also wait."""

    def __init__(self, api: Api, *, before: Hook = nothing, after: Hook = nothing) -> None:
        super().__init__(api)
        self.before = before
        self.after = after
        self.calls: list[str] = []
        self.flow = asyncio.Event()  # cleared: watches deliver nothing
        self.flow.set()
        self._watches: set[asyncio.Timeout] = set()
        self._break: Exception | None = None

    def break_watches(self, error: Exception | None) -> None:
        """Every watch that waits for its next event ends now, normally or with an error."""
        self._break = error
        for limit in self._watches:
            limit.reschedule(asyncio.get_running_loop().time())

    async def send(self, call: Call) -> Any:
        verb, plural = call.verb, call.resource.plural
        self.calls.append(f"{verb} {plural}")
        await self.before(verb, plural)
        answer = await self.inner.send(call)
        await self.after(verb, plural)
        return answer

    @asynccontextmanager
    async def stream(self, call: Call) -> AsyncIterator[Any]:
        self.calls.append(f"watch {call.resource.plural}")
        await self.before("watch", call.resource.plural)
        async with self.inner.stream(call) as events:
            yield self._events(events)

    async def _events(self, events: AsyncIterator[Any]) -> AsyncIterator[Any]:
        while True:
            limit = asyncio.timeout(None)
            try:
                async with limit:
                    self._watches.add(limit)
                    event = await anext(events)
            except StopAsyncIteration:
                return
            except TimeoutError:
                if self._break is not None:
                    raise self._break from None
                return
            finally:
                self._watches.discard(limit)
            await self.flow.wait()
            yield event
