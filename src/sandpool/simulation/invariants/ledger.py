"""The state of the world, updated step by step, so that a judgement looks at one change and not at everything."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

from sandpool.model.claim import SandboxClaim
from sandpool.model.conditions import is_true
from sandpool.model.kinds import CLAIMS, POOLS, SANDBOXES
from sandpool.model.labels import SANDBOX_NAME
from sandpool.model.metadata import Key, OwnerReference, Revision, Uid
from sandpool.model.pool import SandboxWarmPool
from sandpool.model.reasons import Type
from sandpool.model.sandbox import Sandbox
from sandpool.simulation.steps import Step
from sandpool.simulation.world import START


class Ledger:
    """The objects of the world as the invariants need them."""

    def __init__(self) -> None:
        self.sandboxes: dict[Uid, Sandbox] = {}
        self.sandbox_keys: dict[Key, Uid] = {}
        self.claims: dict[Uid, SandboxClaim] = {}
        self.pools: dict[Uid, SandboxWarmPool] = {}
        self.homes: dict[Uid, str] = {}  # the namespace of every claim and pool there ever was
        self.members: dict[Uid, dict[Uid, None]] = {}  # by pool: what it controls and is not leaving
        self.held: dict[Uid, dict[Uid, None]] = {}  # by claim: what it controls, leaving or not
        self.ever_held: dict[Uid, dict[str, None]] = {}  # by claim: the names of all that it ever controlled
        self.makers: dict[Uid, str] = {}  # of sandboxes
        self.born: dict[Uid, Revision] = {}
        self.namers: dict[Uid, str] = {}  # by claim: who last wrote the annotation with its sandbox
        self.givers: dict[Uid, str] = {}  # by sandbox: who gave it to its claim
        self.ripe: dict[Uid, None] = {}  # sandboxes that were ready or finished at some time
        self.edited: dict[Uid, float] = {}  # when the spec of a claim was last changed

    def enter(self, step: Step) -> None:
        """Applies a step, after it was judged."""
        if step.resource is SANDBOXES:
            self._enter_sandbox(step)
        elif step.resource is CLAIMS:
            self._enter_other(step, self.claims)
            if step.old is not None and step.old.metadata.generation != step.object.metadata.generation:
                self.edited[step.object.metadata.uid] = step.at
            if step.new is not None and _named(step.new) != _named(step.old):
                self.namers[step.new.metadata.uid] = step.author.name
        elif step.resource is POOLS:
            self._enter_other(step, self.pools)

    def _enter_sandbox(self, step: Step) -> None:
        old, new = step.old, step.new
        if old is not None:
            uid = old.metadata.uid
            del self.sandboxes[uid]
            self.sandbox_keys.pop(old.metadata.key, None)
            for owned in (self.members, self.held):
                if (owner := old.metadata.controller) is not None and owner.uid in owned:
                    owned[owner.uid].pop(uid, None)
        if new is None:
            return
        uid = new.metadata.uid
        self.sandboxes[uid] = new
        self.sandbox_keys[new.metadata.key] = uid
        if any(is_true(new.status.conditions, one) for one in (Type.READY, Type.FINISHED)):
            self.ripe[uid] = None
        if old is None:
            self.makers[uid] = step.author.name
            self.born[uid] = step.revision
        owner = new.metadata.controller
        if owner is None:
            return
        if owner.kind == SandboxClaim.kind:
            if uid not in self.givers:
                self.givers[uid] = step.author.name
            self.held.setdefault(owner.uid, {})[uid] = None
            self.ever_held.setdefault(owner.uid, {})[new.metadata.name] = None
        elif owner.kind == SandboxWarmPool.kind and not new.metadata.leaving:
            self.members.setdefault(owner.uid, {})[uid] = None

    def _enter_other(self, step: Step, known: dict[Uid, Any]) -> None:
        meta = step.object.metadata
        self.homes[meta.uid] = meta.namespace
        if step.new is None:
            known.pop(meta.uid, None)
        else:
            known[meta.uid] = step.new

    def members_of(self, pool: Uid) -> Iterator[Sandbox]:
        return (self.sandboxes[uid] for uid in self.members.get(pool, ()))

    def held_by(self, claim: Uid) -> Iterator[Sandbox]:
        return (self.sandboxes[uid] for uid in self.held.get(claim, ()))


def moment(at: float) -> datetime:
    """A point of virtual time as the wall clock shows it."""
    return START + timedelta(seconds=at)


def owner_of(sandbox: Sandbox | None, kind: str) -> OwnerReference | None:
    """The controlling owner, if it is of that kind."""
    owner = sandbox.metadata.controller if sandbox is not None else None
    return owner if owner is not None and owner.kind == kind else None


def _named(claim: SandboxClaim | None) -> str:
    return "" if claim is None else claim.metadata.annotations.get(SANDBOX_NAME, "")
