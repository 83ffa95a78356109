"""The floor: the cost of the API server alone. Without controllers, a script makes the three writes that every implementation
needs for each claim: POST claim, the transfer of a sandbox, the binding in the claim's status.

Claims are submitted all at once, as the load generator does it; the other two writes follow as soon as they can, a bounded number at
a time, without a queue, a cache or a check. The sandboxes were made before, by controllers that have ended.
"""

from __future__ import annotations

import asyncio
import os
import time
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from pathlib import Path
from random import random as dice
from typing import Any

from bench.pools import NAMESPACE, POOL
from sandpool.base.clock import Clock, SystemClock
from sandpool.controllers.claim.binding import binding, bound_status
from sandpool.controllers.claim.transfer import transfer
from sandpool.kube.http import HttpApi, connect
from sandpool.kube.kubeconfig import load_kubeconfig
from sandpool.kube.transport import Limits
from sandpool.load.audit import AuditLog
from sandpool.load.counts import Counts, count_audit
from sandpool.load.machine import conditions
from sandpool.load.record import ClaimRecord
from sandpool.load.summary import Used, summarise
from sandpool.model.kinds import CLAIMS, POOLS, SANDBOXES
from sandpool.model.sandbox import Sandbox

SUBMITS = 256
"""At once, as the load generator has it."""
WRITES = 50
"""At once, as our controllers have it."""


async def floor(kubeconfig: Path, claims: int, audit: AuditLog) -> dict[str, Any]:
    clock = SystemClock()
    async with AsyncExitStack() as stack:
        submits, writes = [
            await stack.enter_async_context(_client(kubeconfig, clock, width)) for width in (SUBMITS, WRITES)
        ]
        members = [each for each in (await writes.list(SANDBOXES, NAMESPACE)).items if _is_member(each)][:claims]
        if len(members) < claims:
            raise ValueError(f"{len(members)} members for {claims} claims")
        await _open_connections(submits, min(SUBMITS, claims))
        await _open_connections(writes, min(WRITES, claims))
        audit.mark()
        turn = asyncio.Semaphore(WRITES)
        cpu, origin = time.process_time(), clock.monotonic()
        records = await asyncio.gather(
            *(
                _claim(submits, writes, turn, member, f"floor-{number:06d}", clock, origin)
                for number, member in enumerate(members)
            )
        )
        used = Used(time.process_time() - cpu, clock.monotonic() - origin)
    counts = count_audit(audit.requests(NAMESPACE), Counts())
    shape = {"shape": "burst", "claims": claims, "connections": min(SUBMITS, claims), "dwell_s": None}
    return {**summarise(records, counts, used), "load": shape, "conditions": conditions()}


def _client(kubeconfig: Path, clock: Clock, width: int) -> HttpApi:
    config = load_kubeconfig([kubeconfig])
    return connect(
        config, clock=clock, draw=dice, env=os.environ, width=width, limits=Limits(request=60, connections=width)
    )


def _is_member(sandbox: Sandbox) -> bool:
    return any(owner.controller and owner.kind == POOLS.kind for owner in sandbox.metadata.owner_references)


async def _open_connections(api: HttpApi, count: int) -> None:
    """Connects before the run, so that no handshake is measured."""
    await asyncio.gather(*(api.get(POOLS, POOL, NAMESPACE) for _ in range(count)))


async def _claim(
    submits: HttpApi,
    writes: HttpApi,
    turn: asyncio.Semaphore,
    member: Sandbox,
    name: str,
    clock: Clock,
    origin: float,
) -> ClaimRecord:
    record = ClaimRecord(name=name, pool=POOL, sandbox=member.metadata.name, warm=True)
    record.sent = clock.monotonic() - origin
    body = {"metadata": {"name": name}, "spec": {"warmPoolRef": {"name": POOL}}}
    claim = await submits.create(CLAIMS, body, NAMESPACE)
    record.answered = clock.monotonic() - origin
    async with turn:
        taken = await writes.patch(SANDBOXES, member.metadata.name, transfer(member, claim), NAMESPACE)
        bound = bound_status(claim, taken, datetime.now(UTC))
        await writes.patch_status(CLAIMS, name, binding(claim, bound), NAMESPACE)
    record.ready = clock.monotonic() - origin
    return record
