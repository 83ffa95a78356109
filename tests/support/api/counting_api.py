"""An Api that counts: every call with its verb, its resource and its outcome. A wrapper of the port."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from sandpool.base.errors import SandpoolError
from sandpool.kube.api import WRITES, Api, Call, Event
from sandpool.kube.interceptors import Interceptor
from sandpool.model.patches import Patch

R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Made:
    """One call. `outcome` is "ok" or the name of the error; a call that was cancelled says so."""

    verb: str
    resource: str  # the plural
    outcome: str
    name: str = ""
    namespace: str = ""
    patch: Patch | None = None


class CountingApi(Interceptor):
    def __init__(self, inner: Api) -> None:
        super().__init__(inner)
        self.calls: list[Made] = []

    def count(self, verb: str = "", resource: str = "", outcome: str = "") -> int:
        """How many calls fit; an empty word fits all."""
        return sum(
            verb in ("", made.verb) and resource in ("", made.resource) and outcome in ("", made.outcome)
            for made in self.calls
        )

    @property
    def writes(self) -> int:
        return sum(made.verb in WRITES for made in self.calls)

    @property
    def totals(self) -> Counter[tuple[str, str, str]]:
        return Counter((made.verb, made.resource, made.outcome) for made in self.calls)

    def clear(self) -> None:
        self.calls.clear()

    async def send(self, call: Call) -> Any:
        return await self._counted(call, self.inner.send(call))

    @asynccontextmanager
    async def stream(self, call: Call) -> AsyncIterator[AsyncIterator[Event[Any]]]:
        """A watch is counted when it has begun, or failed to."""
        watch = self.inner.stream(call)
        events = await self._counted(call, watch.__aenter__())
        try:
            yield events
        finally:
            await watch.__aexit__(None, None, None)

    async def _counted(self, call: Call, asked: Awaitable[R]) -> R:
        outcome = "cancelled"
        try:
            result = await asked
            outcome = "ok"
            return result
        except SandpoolError as error:
            outcome = type(error).__name__
            raise
        finally:
            made = Made(str(call.verb), call.resource.plural, outcome, call.object_name, call.namespace, call.patch)
            self.calls.append(made)
