from __future__ import annotations

from typing import Any

import pytest

from sandpool.controllers.claim.observe import obsolete
from sandpool.kube.api import Preconditions
from sandpool.model.codec import convert
from sandpool.model.core import NetworkPolicy
from sandpool.model.kinds import NETWORK_POLICIES
from sandpool.model.metadata import Revision, Uid
from support.simulated.claim_parts import POOL, a_claim

OWNER = {**POOL, "apiVersion": "extensions.agents.x-k8s.io/v1alpha1", "kind": "SandboxClaim", "name": "c"}
OWNER["uid"] = "claim-uid"


def a_policy(*owners: dict[str, Any], **meta: Any) -> NetworkPolicy:
    head = {"name": "c-network-policy", "uid": "u", "resourceVersion": "5", "ownerReferences": list(owners), **meta}
    return convert(NETWORK_POLICIES, {"metadata": head})


def test_the_claims_own_goes() -> None:
    assert obsolete(a_policy(OWNER), a_claim()) == Preconditions(Uid("u"), Revision(5))


@pytest.mark.parametrize(
    "policy",
    [
        a_policy(),
        a_policy({**OWNER, "controller": None}),
        a_policy({**OWNER, "uid": "an earlier claim of the name"}),
        a_policy({**OWNER, "apiVersion": "example.com/v1"}),
        a_policy({**OWNER, "kind": "SandboxTemplate"}),
        a_policy(OWNER, name="other"),
        a_policy(OWNER, deletionTimestamp="2026-01-01T00:00:00Z"),
    ],
)
def test_all_others_stay(policy: NetworkPolicy) -> None:
    assert obsolete(policy, a_claim()) is None
