"""Carries out a pool's plan. A failed step does not stop the others; creates and deletes each stop among themselves."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from functools import partial
from typing import Any

import msgspec

from sandpool.base.errors import SandpoolError
from sandpool.controllers.assigner.assigner import Assigner
from sandpool.controllers.assigner.facts import Woken
from sandpool.controllers.assigner.staleness import Staleness
from sandpool.controllers.pool.creation import Current, Job, Maker, owner_reference, run
from sandpool.controllers.pool.memory import Memory
from sandpool.controllers.pool.options import Options
from sandpool.controllers.pool.plan import Outcome, Plan
from sandpool.controllers.pool.removal import Remover
from sandpool.controllers.pool.roster import missing_marks
from sandpool.controllers.pool.view import PoolView
from sandpool.kube.errors import NotFound
from sandpool.loop.cache import Cache
from sandpool.loop.writes import Writes
from sandpool.model.kinds import SANDBOXES
from sandpool.model.metadata import Key, Uid
from sandpool.model.patches import merge_patch
from sandpool.model.pool import SandboxWarmPool
from sandpool.model.sandbox import Sandbox
from sandpool.telemetry.reconcile_history import note


class Applier:
    """Carries out a pool's plan."""

    def __init__(
        self,
        writes: Writes,
        sandboxes: Cache[Sandbox],
        assigner: Assigner,
        staleness: Staleness,
        wake_claims: Callable[[Woken], object],
        random: Callable[[], float],
        options: Options,
    ) -> None:
        self._writes = writes
        self._sandboxes = sandboxes
        self._staleness = staleness
        self._options = options
        self._maker = Maker(writes, sandboxes, random, options, staleness.defaults)
        self._remover = Remover(writes, sandboxes, assigner, wake_claims)

    async def settle(self, pool: SandboxWarmPool, memory: Memory, outcome: Outcome) -> None:
        """Settles creates whose answer is missing."""
        if memory.unsettled:
            await self._maker.settle(pool, memory, outcome)

    async def apply(self, view: PoolView, memory: Memory, plan: Plan, current: Current, outcome: Outcome) -> None:
        pool, most = view.pool, self._options.concurrency
        repair = partial(self._repair, pool, memory, plan.repair_again_at, outcome)
        kept: list[Job] = [partial(repair, orphan.name, orphan.uid) for orphan in plan.adopt]
        kept += [partial(repair, member.name, member.uid) for member in plan.mark]
        await run(kept, most, most)
        blueprint = self._staleness.blueprint(view.template) if view.template is not None else ""
        await self._maker.make(view, blueprint, memory, plan.creates, current, outcome)
        gone: list[Job] = [partial(self._remover.remove, pool, memory, one, outcome) for one in plan.removals]
        gone += [partial(self._remover.discard, pool, orphan, outcome) for orphan in plan.discard]
        await run([partial(_while, current, job) for job in gone], most, most)

    async def _repair(
        self, pool: SandboxWarmPool, memory: Memory, again_at: datetime, outcome: Outcome, name: str, uid: Uid
    ) -> bool:
        """Makes the sandbox a member, or restores its labels. The patch is pinned to a revision: a claim may have taken it meanwhile."""
        sandbox = self._sandboxes.get(Key(pool.metadata.namespace, name))
        if sandbox is None or sandbox.metadata.uid != uid:
            return True
        body = _owned(sandbox, pool)
        if body is None:
            return True
        note(f"mark {name}")
        try:
            await self._writes.patch(SANDBOXES, name, merge_patch({"metadata": body}), pool.metadata.namespace)
        except NotFound:
            pass  # its DELETED event will wake us
        except SandpoolError as error:
            outcome.errors.append(error)
            with suppress(SandpoolError):
                # The patch may have taken effect, or another writer was faster: read what is there, so that it is counted.
                await self._writes.get(SANDBOXES, name, pool.metadata.namespace)
            return False
        memory.repaired[uid] = again_at
        return True


async def _while(current: Current, job: Job) -> bool:
    """Runs the job unless the pool or its template changed since the plan was made: that has woken the pool."""
    return await job() if current() else True


def _owned(sandbox: Sandbox, pool: SandboxWarmPool) -> dict[str, Any] | None:
    meta = sandbox.metadata
    owner = meta.controller
    if owner is not None and owner.uid != pool.metadata.uid:
        return None
    body: dict[str, Any] = {"uid": meta.uid, "resourceVersion": meta.resource_version}
    if marks := missing_marks(sandbox, pool.metadata.name):
        body["labels"] = marks
    if owner is None:
        references = (*meta.owner_references, owner_reference(pool))
        body["ownerReferences"] = [msgspec.to_builtins(reference) for reference in references]
    return body
