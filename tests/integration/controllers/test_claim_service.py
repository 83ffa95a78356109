"""A claim says by which name in DNS its sandbox is reached: in the write that binds it, as its sandbox says it, and no longer."""

from __future__ import annotations

import pytest

from integration.controllers.claim_cluster import READY, a_claim_cluster
from sandpool.controllers.claim.options import Options
from sandpool.model.claim import SandboxClaim
from sandpool.model.kinds import SANDBOXES

pytestmark = pytest.mark.looptime
NAME = "m0.default.svc.cluster.local"


def shown(claim: SandboxClaim) -> str:
    assert claim.status.sandbox is not None
    return claim.status.sandbox.service_fqdn


async def test_the_binding_names_the_service() -> None:
    async with a_claim_cluster() as life:
        await life.furnish()
        await life.says("m0", READY, podIPs=["10.0.0.1"], service="m0", serviceFQDN=NAME)
        await life.settle()
        life.counted.clear()
        await life.claim()
        await life.settle()
        assert shown(await life.see()) == NAME
        assert life.writes == [
            "patch sandboxes", "patch sandboxclaims", "patch_status sandboxclaims", "patch sandboxclaims",
        ]  # fmt: skip
        assert life.reconciles == 1, life.told()


async def test_a_service_that_comes_and_goes_is_followed() -> None:
    async with a_claim_cluster(Options(moment=1.0)) as life:
        await life.furnish()
        await life.claim()
        await life.settle()
        assert shown(await life.see()) == ""
        await life.says("m0", READY, podIPs=["10.0.0.1"], serviceFQDN=NAME)
        await life.settle(2)
        assert shown(await life.see()) == NAME
        await life.says("m0", READY, podIPs=["10.0.0.1"], serviceFQDN=None)
        await life.settle(2)
        assert shown(await life.see()) == ""


async def test_a_claim_that_lost_its_sandbox_names_no_service() -> None:
    async with a_claim_cluster() as life:
        await life.furnish()
        await life.says("m0", READY, podIPs=["10.0.0.1"], serviceFQDN=NAME)
        await life.claim()
        await life.settle()
        assert shown(await life.see()) == NAME
        await life.api.delete(SANDBOXES, "m0", "default")
        await life.settle()
        status = (await life.see()).status
        assert status.sandbox is None or status.sandbox.service_fqdn == ""
