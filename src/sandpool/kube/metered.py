"""An Api whose calls are told to somebody who counts, as those of the HTTP adapter are: verb, resource, outcome, seconds.

For an Api without a wire.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from sandpool.base.clock import Clock
from sandpool.kube.api import Api
from sandpool.kube.around import Around
from sandpool.model.resource import Resource

R = TypeVar("R")


class Counted(Around):
    def __init__(self, api: Api, clock: Clock, told: Callable[[str, str, str, float], object]) -> None:
        super().__init__(api)
        self._clock = clock
        self._told = told

    async def _seen(
        self, verb: str, resource: Resource[Any], what: object, namespace: str, call: Callable[[], Awaitable[R]]
    ) -> R:
        started, outcome = self._clock.monotonic(), "ok"
        try:
            return await call()
        except BaseException as error:
            outcome = type(error).__name__
            raise
        finally:
            self._told(verb, resource.group_resource, outcome, self._clock.monotonic() - started)
