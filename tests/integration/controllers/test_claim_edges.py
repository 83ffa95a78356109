"""Corners of the contract that no other file about claims has a place for."""

from __future__ import annotations

import pytest

from integration.controllers.claim_cluster import a_claim_cluster
from sandpool.kube.errors import InternalError
from sandpool.model.kinds import CLAIMS, SANDBOXES
from sandpool.model.patches import merge_patch

pytestmark = pytest.mark.looptime


async def test_a_bound_sandbox_that_cannot_be_read_stays_the_claims() -> None:
    """The status names a sandbox that the cache does not show as the claim's. Nobody knows more before a read succeeds."""
    async with a_claim_cluster() as life:
        await life.furnish(2)
        await life.settle()
        claim = await life.claim("other", warmPoolRef={"name": "none"})
        await life.settle()
        life.api.flow.clear()
        owner = {
            "apiVersion": "extensions.agents.x-k8s.io/v1beta1", "kind": "SandboxClaim", "name": "other",
            "uid": claim.metadata.uid, "controller": True,
        }  # fmt: skip
        await life.api.patch(SANDBOXES, "m1", merge_patch({"metadata": {"ownerReferences": [owner]}}), "default")
        bound = {"sandbox": {"name": "m1", "podIPs": ["10.0.0.1"]}}
        fault = life.faulty.on("get", "sandboxes", times=3).refuse(InternalError("broken"))
        told = await life.api.patch_status(CLAIMS, "other", merge_patch({"status": bound}), "default")
        life.counted.clear()
        life.caches.claims.upsert(told)
        for _ in range(100):
            if fault.met == 3:
                break
            await life.settle(0.01)
            assert await life.has("other") == "m1", "the name is kept, or the claim would get a second one"
            assert await life.owned(claim) == ["m1"]
        assert fault.met == 3
        await life.settle(1)
        assert await life.said("Ready", "other") == ("True", "DependenciesReady")
        assert await life.owned(claim) == ["m1"]
        life.api.flow.set()
