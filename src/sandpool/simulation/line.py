"""The line between one leader's controllers and the world: an Api on which everything that can go wrong does, by dice.

A call may be refused, wait, happen and lose its answer, or land after its caller has died. Once the line is cut (a crash)
no call reaches the world any more, not even from a `finally`; what was already on its way still may.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from random import Random
from typing import Any, TypeVar

from sandpool.base.errors import SandpoolError
from sandpool.kube.api import Api, Page, Preconditions, Propagation
from sandpool.kube.errors import (
    Conflict,
    InternalError,
    Refused,
    ServerTimeout,
    TooManyRequests,
    Unavailable,
    Unreachable,
)
from sandpool.model.metadata import Object, Revision
from sandpool.model.patches import Patch
from sandpool.model.resource import Resource
from sandpool.simulation.authorship import Author, of_leader, writing
from sandpool.simulation.faults import Fault, Faults
from sandpool.simulation.watching import Watching
from sandpool.simulation.world import World

T = TypeVar("T", bound=Object)
R = TypeVar("R")

_BEFORE: tuple[tuple[Fault, Callable[[], SandpoolError]], ...] = (
    (Fault.INTERNAL, lambda: InternalError("something went wrong")),
    (Fault.TOO_MANY, lambda: TooManyRequests("too many requests", retry_after=1)),
    (Fault.UNAVAILABLE, lambda: Unavailable("the server is not ready")),
    (Fault.TIMEOUT, lambda: ServerTimeout("the request timed out")),
    (Fault.REFUSED, lambda: Refused("connection refused")),
)
_AFTER: tuple[tuple[Fault, Callable[[], SandpoolError]], ...] = (
    (Fault.LOST, lambda: Unreachable("the connection broke before the answer")),
    (Fault.TIMEOUT_AFTER, lambda: ServerTimeout("the request timed out")),
    (Fault.INTERNAL_AFTER, lambda: InternalError("something went wrong afterwards")),
)
_LONGEST = 12.0
"""Seconds that a slow call takes at most."""


class Line:
    """`asked` hears of every write before it leaves, with who makes it: an invariant may note what its leader knew then.
    `answered` hears of the answers that reach the leader."""

    def __init__(
        self,
        world: World,
        leader: str,
        faults: Faults,
        latency: Random,
        pace: float,
        crash: Callable[[], object],
        asked: Callable[[Author, str, Resource[Any], str, str], object],
        answered: Callable[[Author, str, object], object],
    ) -> None:
        self.cut = False
        self.newest = Revision(0)  # that any of its watches has delivered
        self._world = world
        self._api: Api = world.api
        self._leader = leader
        self._faults = faults
        self._latency = latency
        self._pace = pace
        self._crash = crash
        self._asked = asked
        self._answered = answered

    async def get(self, resource: Resource[T], name: str, namespace: str = "") -> T:
        return await self._call(lambda: self._api.get(resource, name, namespace))

    async def list(
        self,
        resource: Resource[T],
        namespace: str = "",
        *,
        labels: str = "",
        fields: str = "",
        limit: int = 0,
        after: str = "",
    ) -> Page[T]:
        return await self._call(
            lambda: self._api.list(resource, namespace, labels=labels, fields=fields, limit=limit, after=after)
        )

    def watch(
        self,
        resource: Resource[T],
        namespace: str = "",
        *,
        labels: str = "",
        fields: str = "",
        since: Revision | None = None,
        initial: bool = False,
        timeout: float | None = None,
    ) -> Watching[T]:
        inner = self._api.watch(
            resource, namespace, labels=labels, fields=fields, since=since, initial=initial, timeout=timeout
        )
        return Watching(inner, self, self._faults, self._latency, self._pace)

    async def create(self, resource: Resource[T], body: T | Mapping[str, Any], namespace: str = "") -> T:
        return await self._write("create", resource, "", namespace, lambda: self._api.create(resource, body, namespace))

    async def patch(self, resource: Resource[T], name: str, patch: Patch, namespace: str = "") -> T:
        return await self._write(
            "patch", resource, name, namespace, lambda: self._api.patch(resource, name, patch, namespace)
        )

    async def patch_status(self, resource: Resource[T], name: str, patch: Patch, namespace: str = "") -> T:
        return await self._write(
            "patch_status", resource, name, namespace, lambda: self._api.patch_status(resource, name, patch, namespace)
        )

    async def delete(
        self,
        resource: Resource[T],
        name: str,
        namespace: str = "",
        *,
        preconditions: Preconditions | None = None,
        propagation: Propagation | None = None,
        grace: int | None = None,
    ) -> T | None:
        def ask() -> Coroutine[Any, Any, T | None]:
            return self._api.delete(
                resource, name, namespace, preconditions=preconditions, propagation=propagation, grace=grace
            )

        return await self._write("delete", resource, name, namespace, ask)

    # What becomes of a call

    async def _write(
        self, verb: str, resource: Resource[Any], name: str, namespace: str, make: Callable[[], Coroutine[Any, Any, R]]
    ) -> R:
        self._check()
        who = of_leader(self._leader, self._world.clock.monotonic())
        self._asked(who, verb, resource, name, namespace)
        with writing(who):
            if verb != "create" and self._faults.strikes(Fault.CONFLICT):
                await self._wait()
                raise Conflict("the object has been modified; please apply your changes to the latest version")
            answer = await self._call(make)
        self._answered(who, verb, answer)
        return answer

    async def _call(self, make: Callable[[], Coroutine[Any, Any, R]]) -> R:
        self._check()
        if self._faults.strikes(Fault.CRASH_IN_CALL):
            return await self._dying(make)
        if self._faults.strikes(Fault.SLOW):
            answer = await self._slowly(make)
        else:
            await self._wait()
            for fault, error in _BEFORE:
                if self._faults.strikes(fault):
                    if fault is Fault.TIMEOUT:  # by its nature not told soon
                        await self._wait(self._some_time())
                    raise error()
            answer = await make()
            if self._latency.random() < 0.5:
                await self._wait()
        self._check()
        for fault, error in _AFTER:
            if self._faults.strikes(fault):
                raise error()
        return answer

    async def _slowly(self, make: Callable[[], Coroutine[Any, Any, R]]) -> R:
        """On its way for long. Whoever stops waiting, or dies, does not stop it."""
        landing = self._world.spawn(self._land(make, self._some_time()))
        made, error = await asyncio.shield(landing)
        if error is not None:
            raise error
        answer: R = made
        return answer

    async def _land(
        self, make: Callable[[], Coroutine[Any, Any, R]], wait: float
    ) -> tuple[R | None, BaseException | None]:
        await asyncio.sleep(wait)
        if self.cut:
            self._faults.happened(Fault.LATE)
        try:
            return await make(), None
        except SandpoolError as error:
            return None, error

    async def _dying(self, make: Callable[[], Coroutine[Any, Any, R]]) -> R:
        """The process dies while this call is under way: before it was sent, on its way, or before the answer came."""
        moment = self._latency.random()
        if moment < 0.3:
            self._crash()
        elif moment < 0.6:
            self._world.spawn(self._land(make, self._some_time()))
            self._crash()
        else:
            try:
                await make()
            finally:
                self._crash()
        raise asyncio.CancelledError("the process died")

    async def _wait(self, longer: float = 0.0) -> None:
        """Every call takes some time, or two who disagree could go on for ever within one moment."""
        await asyncio.sleep((0.1 + self._latency.random()) * self._pace + longer)
        self._check()

    def _some_time(self) -> float:
        """Mostly short, seldom long."""
        return self._latency.random() ** 3 * _LONGEST

    def _check(self) -> None:
        if self.cut:
            raise asyncio.CancelledError("the process is dead")
