"""Makes members, each at most once, whatever becomes of the answers.

A name counts as a member from the moment that its create is sent until the answer is in the cache. Where no answer came, one
consistent read by name settles it. A name that turned out to be free is used again first: if the lost create arrives late
after all, it and its successor are one object.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from sandpool.base.errors import SandpoolError
from sandpool.controllers.pool.batches import run
from sandpool.controllers.pool.body import blank_member, member_name, named
from sandpool.controllers.pool.memory import Memory
from sandpool.controllers.pool.options import Options
from sandpool.controllers.pool.outcome import Outcome, uncertain
from sandpool.controllers.pool.view import PoolView
from sandpool.kube.errors import AlreadyExists, ApiError, Conflict, Invalid, NotFound, TooManyRequests
from sandpool.loop.cache import Cache
from sandpool.loop.writes import Writes
from sandpool.model.container_defaults import ContainerDefaults
from sandpool.model.kinds import SANDBOXES
from sandpool.model.metadata import Key
from sandpool.model.pool import SandboxWarmPool
from sandpool.model.sandbox import Sandbox
from sandpool.telemetry.reconcile_history import note

Current = Callable[[], bool]
"""Whether pool and template still are what the decision was made on."""


@dataclass(frozen=True, slots=True)
class Maker:
    writes: Writes
    sandboxes: Cache[Sandbox]
    random: Callable[[], float]
    options: Options
    defaults: ContainerDefaults

    async def settle(self, pool: SandboxWarmPool, memory: Memory, outcome: Outcome) -> None:
        """Finds out what became of creates whose answers are missing."""
        jobs = [partial(self._settle, pool, memory, name, outcome) for name in memory.unsettled]
        await run(jobs, self.options.concurrency, self.options.concurrency)

    async def make(
        self, view: PoolView, blueprint: str, memory: Memory, count: int, current: Current, outcome: Outcome
    ) -> None:
        if count <= 0 or view.template is None:
            return
        note(f"create {count}")
        blank = blank_member(view.pool, view.template, blueprint, self.defaults)
        jobs = [partial(self._make, view.pool, memory, blank, current, outcome)] * count
        most = self.options.concurrency
        well = await run(jobs, 1 if memory.careful else most, most)
        memory.careful = not well
        if well:
            memory.failed = ""

    async def _make(
        self, pool: SandboxWarmPool, memory: Memory, blank: Sandbox, current: Current, outcome: Outcome
    ) -> bool:
        if not current():
            return True  # what changed has woken us
        name = self._name(pool, memory)
        memory.unsettled[name] = None
        try:
            await self.writes.create(SANDBOXES, named(blank, name), pool.metadata.namespace)
        except AlreadyExists:
            outcome.again = True
            return await self._settle(pool, memory, name, outcome)
        except SandpoolError as error:
            outcome.errors.append(error)
            if not uncertain(error):
                del memory.unsettled[name]
                memory.names.append(name)
                self._explain(pool, memory, error, outcome)
            return False
        del memory.unsettled[name]
        return True

    async def _settle(self, pool: SandboxWarmPool, memory: Memory, name: str, outcome: Outcome) -> bool:
        key = Key(pool.metadata.namespace, name)
        if self.sandboxes.get(key) is None:
            try:
                await self.writes.get(SANDBOXES, name, key.namespace)  # what it finds is in the cache then
            except NotFound:
                memory.names.append(name)
            except SandpoolError as error:
                outcome.errors.append(error)
                return False
        # Ours counts in the ledger now. Somebody else's does not, and another name will be drawn.
        memory.unsettled.pop(name, None)
        return True

    def _explain(self, pool: SandboxWarmPool, memory: Memory, error: SandpoolError, outcome: Outcome) -> None:
        """What a user can act on is kept for the condition; what the same body would meet again is not tried again soon."""
        template = pool.spec.sandbox_template_ref.name
        if isinstance(error, Invalid) and error.causes and memory.judged is not None:
            message = f"The API server refuses members of SandboxTemplate {template}, change it: {error}"
            memory.refused, outcome.refused = (memory.judged, message), True
            outcome.errors.remove(error)
        elif isinstance(error, ApiError) and not isinstance(error, Conflict | TooManyRequests):
            memory.failed = f"Members of SandboxTemplate {template} cannot be created: {error}"

    def _name(self, pool: SandboxWarmPool, memory: Memory) -> str:
        while memory.names:
            name = memory.names.pop()
            if self._free(pool, memory, name):
                return name
        while not self._free(pool, memory, name := member_name(pool.metadata.name, self.random)):
            pass
        return name

    def _free(self, pool: SandboxWarmPool, memory: Memory, name: str) -> bool:
        return name not in memory.unsettled and self.sandboxes.get(Key(pool.metadata.namespace, name)) is None
