"""An Api around another one in which a test decides, call by call, what goes wrong; it also remembers what was called."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from sandpool.kube.api import Api

Hook = Callable[[str, str], Awaitable[None]]
"""Called with the verb and the plural of the resource."""


async def nothing(verb: str, plural: str) -> None:
    return None


class FlakyApi:
    """`before` runs ahead of each call: raising there means that the request never reached the server. `after` runs once
    the server has processed it: raising there loses the answer. Either may also wait."""

    def __init__(self, api: Api, *, before: Hook = nothing, after: Hook = nothing) -> None:
        self.before = before
        self.after = after
        self.calls: list[str] = []
        self.flow = asyncio.Event()  # cleared: watches deliver nothing
        self.flow.set()
        self._api = api
        self._watches: set[asyncio.Timeout] = set()
        self._break: Exception | None = None

    def break_watches(self, error: Exception | None) -> None:
        """Every watch that waits for its next event ends now, normally or with an error."""
        self._break = error
        for limit in self._watches:
            limit.reschedule(asyncio.get_running_loop().time())

    async def get(self, resource: Any, name: str, namespace: str = "") -> Any:
        return await self._call("get", resource, name, namespace)

    async def list(self, resource: Any, namespace: str = "", **options: Any) -> Any:
        return await self._call("list", resource, namespace, **options)

    async def create(self, resource: Any, body: Any, namespace: str = "") -> Any:
        return await self._call("create", resource, body, namespace)

    async def patch(self, resource: Any, name: str, patch: Any, namespace: str = "") -> Any:
        return await self._call("patch", resource, name, patch, namespace)

    async def patch_status(self, resource: Any, name: str, patch: Any, namespace: str = "") -> Any:
        return await self._call("patch_status", resource, name, patch, namespace)

    async def delete(self, resource: Any, name: str, namespace: str = "", **options: Any) -> Any:
        return await self._call("delete", resource, name, namespace, **options)

    @asynccontextmanager
    async def watch(self, resource: Any, namespace: str = "", **options: Any) -> AsyncIterator[Any]:
        self.calls.append(f"watch {resource.plural}")
        await self.before("watch", resource.plural)
        async with self._api.watch(resource, namespace, **options) as events:
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

    async def _call(self, verb: str, resource: Any, *args: Any, **options: Any) -> Any:
        self.calls.append(f"{verb} {resource.plural}")
        await self.before(verb, resource.plural)
        answer = await getattr(self._api, verb)(resource, *args, **options)
        await self.after(verb, resource.plural)
        return answer
