"""What earlier versions left behind: a NetworkPolicy for each claim, where there is one for each template today."""

from __future__ import annotations

from sandpool.kube.api import Preconditions
from sandpool.model.claim import SandboxClaim
from sandpool.model.core import NetworkPolicy
from sandpool.model.template import GROUP


def policy_name(claim: str) -> str:
    return f"{claim}-network-policy"


def obsolete(policy: NetworkPolicy, claim: SandboxClaim) -> Preconditions | None:
    """With what to delete it. None: it is not this claim's, or already on its way."""
    meta, owner = policy.metadata, policy.metadata.controller
    if meta.leaving or meta.name != policy_name(claim.metadata.name) or owner is None:
        return None
    ours = (owner.group, owner.kind, owner.uid) == (GROUP, SandboxClaim.kind, claim.metadata.uid)
    return Preconditions(uid=meta.uid, revision=meta.revision) if ours else None
