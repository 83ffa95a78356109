"""The world at the end of a run, by kind and name."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sandpool.model.claim import SandboxClaim
from sandpool.model.metadata import Key, Uid
from sandpool.model.pod import Pod
from sandpool.model.pool import SandboxWarmPool
from sandpool.model.sandbox import Sandbox
from sandpool.model.template import SandboxTemplate


@dataclass(slots=True)
class Outcome:
    now: datetime
    claims: dict[Key, SandboxClaim]
    sandboxes: dict[Key, Sandbox]
    pools: dict[Key, SandboxWarmPool]
    templates: dict[Key, SandboxTemplate]
    pods: dict[Key, Pod]
    others: list[Any]
    uids: set[Uid]
    free: set[Uid]  # sandboxes that may live without an owner: made so, or orphaned, by a user

    def held_by(self, claim: SandboxClaim) -> list[Sandbox]:
        return [box for box in self.sandboxes.values() if controls(claim.metadata.uid, box)]

    def members_of(self, pool: SandboxWarmPool) -> list[Sandbox]:
        return [box for box in self.sandboxes.values() if controls(pool.metadata.uid, box)]

    def template_of(self, pool: SandboxWarmPool) -> SandboxTemplate | None:
        return self.templates.get(Key(pool.metadata.namespace, pool.spec.sandbox_template_ref.name))


def controls(owner: Uid, obj: Any) -> bool:
    found = obj.metadata.controller
    return found is not None and found.uid == owner
