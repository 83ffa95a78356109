"""What a claim's status already says counts as told: a lost write of ours that shows up later is then news."""

from __future__ import annotations

from datetime import UTC, datetime

from sandpool.controllers.claim.memory import Memory
from sandpool.controllers.claim.publish import Publisher
from sandpool.loop.writes import Writes
from sandpool.model.claim import BoundSandbox, PoolRef, SandboxClaim, SandboxClaimSpec, SandboxClaimStatus
from sandpool.model.metadata import Metadata, Uid
from support.simulated.loop_cluster import a_cluster


async def test_agreement_is_told() -> None:
    status = SandboxClaimStatus(sandbox=BoundSandbox(name="box"))
    claim = SandboxClaim(
        metadata=Metadata(name="claim", namespace="default", uid=Uid("u")),
        spec=SandboxClaimSpec(warm_pool_ref=PoolRef(name="pool")),
        status=status,
    )
    memory = Memory(lambda: datetime(2026, 1, 1, tzinfo=UTC))
    memory.of(claim).published = SandboxClaimStatus()  # written before; its answer was lost
    async with a_cluster() as api:
        assert await Publisher(Writes(api, ()), memory).publish(claim, status) is claim
    assert memory.of(claim).published == status
