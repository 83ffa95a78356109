"""A real runtime whose calls can be made to fail, or to wait, by their name."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Sequence
from typing import Any, TypeVar

from sandpool.base.errors import NodeError
from sandpool.node.backend import Probe
from sandpool.node.runtimes.contract import (
    Container,
    ContainerPlan,
    FoundSandbox,
    Limits,
    Runtime,
    Sandbox,
    SandboxPlan,
    Stdio,
)

T = TypeVar("T")


class FaultyRuntime:
    """`failures["start"] = [NodeError(...)]` lets the next start fail; `gates["create"] = event` lets it wait."""

    name = "faulty"

    def __init__(self, real: Runtime) -> None:
        self._real = real
        self.failures: dict[str, list[NodeError]] = defaultdict(list)
        self.gates: dict[str, asyncio.Event] = {}
        self.calls: list[str] = []

    async def call(self, name: str, work: Awaitable[T]) -> T:
        self.calls.append(name)
        if name in self.gates:
            await self.gates[name].wait()
        if self.failures[name]:
            error = self.failures[name].pop(0)
            if asyncio.iscoroutine(work):
                work.close()
            raise error
        return await work

    async def probe(self) -> Probe:
        return await self._real.probe()

    def unheld(self, limits: Limits) -> str:
        return self._real.unheld(limits)

    async def open(self) -> None:
        await self._real.open()

    async def close(self) -> None:
        await self._real.close()

    async def create(self, plan: SandboxPlan) -> Sandbox:
        return FaultySandbox(await self.call("create", self._real.create(plan)), self)

    async def find(self) -> Sequence[FoundSandbox[Sandbox]]:
        return ()


class FaultySandbox:
    def __init__(self, real: Sandbox, runtime: FaultyRuntime) -> None:
        self._real = real
        self._runtime = runtime

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    async def start(self, plan: ContainerPlan, stdio: Stdio) -> Container:
        return await self._runtime.call("start", self._real.start(plan, stdio))

    async def destroy(self) -> None:
        await self._runtime.call("destroy", self._real.destroy())
