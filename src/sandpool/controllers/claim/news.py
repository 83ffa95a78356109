"""The Events of a claim: one when it gets its sandbox, one when it ends, one for each new refusal."""

from __future__ import annotations

from typing import NamedTuple

from sandpool.controllers.claim.steps import Refuse
from sandpool.controllers.claim.view import warm
from sandpool.loop.events import Kind
from sandpool.model.claim import SandboxClaim
from sandpool.model.event_reasons import EventReason
from sandpool.model.sandbox import Sandbox

__all__ = ["Kind", "News", "bound_news", "end_news", "refusal_news"]


class News(NamedTuple):
    kind: Kind
    reason: str
    message: str
    action: str = ""


def bound_news(claim: SandboxClaim, sandbox: Sandbox) -> News:
    name, pool = sandbox.metadata.name, claim.spec.warm_pool_ref.name
    if warm(sandbox):
        return News(Kind.NORMAL, EventReason.SANDBOX_ADOPTED, f"Took sandbox {name} from pool {pool}", "Adoption")
    return News(Kind.NORMAL, EventReason.SANDBOX_PROVISIONED, f"Created sandbox {name}", "Provisioning")


def end_news() -> News:
    return News(Kind.NORMAL, EventReason.CLAIM_EXPIRED, "The claim reached the end of its life", "Expiring")


def refusal_news(step: Refuse) -> News:
    return News(Kind.WARNING, step.reason, step.message)
