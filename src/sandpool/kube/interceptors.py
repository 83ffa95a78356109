"""Wrappers of an Api that see its calls: each one has a single method, `send`.

`Traced` adds calls to the trace and to the reconcile history, `Metered` counts them, `Gated` makes writes wait for their turn.
Watches pass unseen, and so do lists where a cache counts its own.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from typing import Any, Final

from sandpool.base.clock import Clock
from sandpool.kube.api import WRITES, Api, Call, Event, Verb
from sandpool.kube.priority import current_priority
from sandpool.kube.priority_gate import PriorityGate
from sandpool.telemetry.reconcile_history import ASKED, TRIED, WROTE, note
from sandpool.telemetry.trace import NullTracer, Tracer

_PHRASES: Final = {Verb.PATCH_STATUS: "patch status of"}


class Interceptor(Api):
    """Passes everything on. Override `send`."""

    def __init__(self, api: Api) -> None:
        self.inner = api

    async def send(self, call: Call) -> Any:
        return await self.inner.send(call)

    def stream(self, call: Call) -> AbstractAsyncContextManager[AsyncIterator[Event[Any]]]:
        return self.inner.stream(call)


class Traced(Interceptor):
    """Calls become part of the history and the trace of the reconcile that makes them: what was written, and the result.

    Nothing is kept here: outside a reconcile, and without a tracer, a call only passes.
    """

    def __init__(self, api: Api, tracer: Tracer = NullTracer()) -> None:
        super().__init__(api)
        self._tracer = None if isinstance(tracer, NullTracer) else tracer

    async def send(self, call: Call) -> Any:
        verb = call.verb
        if verb is Verb.LIST:
            return await self.inner.send(call)
        name = call.name or call.object_name
        phrase = f"{_PHRASES.get(verb, verb)} {call.resource.plural}"
        try:
            if self._tracer is None:
                answer = await self.inner.send(call)
            else:
                with self._tracer.span(phrase, namespace=call.namespace, object=name):
                    answer = await self.inner.send(call)
        except BaseException as error:  # also when cancelled: the history should show the attempt
            note(f"{TRIED} {phrase}/{name}: {type(error).__name__}")
            raise
        note(f"{ASKED if verb is Verb.GET else WROTE} {phrase}/{name}")
        return answer


class Metered(Interceptor):
    """Reports every call to `called` as the HTTP adapter does: verb, resource, outcome, seconds. For an Api without a wire."""

    def __init__(self, api: Api, clock: Clock, called: Callable[[str, str, str, float], object]) -> None:
        super().__init__(api)
        self._clock = clock
        self._called = called

    async def send(self, call: Call) -> Any:
        if call.verb is Verb.LIST:
            return await self.inner.send(call)
        started, outcome = self._clock.monotonic(), "ok"
        try:
            return await self.inner.send(call)
        except BaseException as error:
            outcome = type(error).__name__
            raise
        finally:
            self._called(call.verb, call.resource.group_resource, outcome, self._clock.monotonic() - started)


class Gated(Interceptor):
    """Writes pass a gate with the priority of their context. For an Api without a gate of its own, such as one in this process."""

    def __init__(self, api: Api, gate: PriorityGate) -> None:
        super().__init__(api)
        self._gate = gate

    async def send(self, call: Call) -> Any:
        if call.verb not in WRITES:
            return await self.inner.send(call)
        gate, priority = self._gate, current_priority()
        if not gate.enter_now(priority):
            await gate.enter(priority, write=True)
        try:
            return await self.inner.send(call)
        finally:
            gate.leave(priority)
