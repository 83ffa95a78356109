"""What a sandbox's plan is made of: single writes as values, each with the uid that it was planned for, and the metadata by which an object becomes the sandbox's."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, NamedTuple

import msgspec

from sandpool.controllers.sandbox.view import owner_reference
from sandpool.kube.api import Preconditions
from sandpool.model.labels import ADOPTABLE, SANDBOX_NAME_HASH, SANDBOX_UID
from sandpool.model.metadata import Metadata, Object, Uid
from sandpool.model.names import name_hash
from sandpool.model.patches import Patch, merge_patch
from sandpool.model.resource import Resource
from sandpool.model.sandbox import Sandbox

Body = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Create:
    """Create this object."""

    resource: Resource[Any]
    body: Body
    gated: bool = False  # only if every step before it succeeded

    @property
    def name(self) -> str:
        name: str = self.body["metadata"]["name"]
        return name

    def __str__(self) -> str:
        return f"create {self.resource.singular} {self.name}"


@dataclass(frozen=True, slots=True)
class Change:
    """Patch an object, if it still has this uid."""

    resource: Resource[Any]
    name: str
    patch: Patch
    why: str
    gated: bool = False  # only if no step before it failed
    takes: bool = False  # it adopts an object without an owner

    def __str__(self) -> str:
        return f"patch {self.resource.singular} {self.name}: {self.why}"


@dataclass(frozen=True, slots=True)
class Delete:
    """Delete an object, if it still has this uid and revision."""

    resource: Resource[Any]
    name: str
    preconditions: Preconditions
    why: str

    def __str__(self) -> str:
        return f"delete {self.resource.singular} {self.name}: {self.why}"


Step = Create | Change | Delete


class Basis(NamedTuple):
    """The parts of a sandbox that a plan depends on. If they change, the plan is void, and the change has woken the sandbox."""

    uid: Uid
    generation: int
    leaving: bool
    owner: Uid | None


@dataclass(frozen=True, slots=True)
class Plan:
    """The steps for one sandbox, and when to reconcile it again."""

    steps: tuple[Step, ...] = ()
    refused: tuple[str, ...] = ()  # what cannot be done until a user changes something
    expired: bool = False
    look_again_at: datetime | None = None
    decided_on: Basis | None = None

    @property
    def makes(self) -> bool:
        return Create in map(type, self.steps)

    @property
    def unmakes(self) -> bool:
        return Delete in map(type, self.steps)

    @property
    def takes(self) -> bool:
        return any(map(_takes, self.steps))

    def gaining_nothing_before(self, when: datetime) -> Plan:
        """The plan without creates and adoptions, to be made again at `when`."""
        steps = tuple(step for step in self.steps if not isinstance(step, Create) and not _takes(step))
        return replace(self, steps=steps, look_again_at=min(when, self.look_again_at or when))

    def within(self, earlier: Plan) -> Plan:
        """The plan with only those adoptions that an earlier plan had, too. Objects that became free since then have woken the sandbox."""
        return replace(self, steps=tuple(step for step in self.steps if not _takes(step) or step in earlier.steps))


def _takes(step: Step) -> bool:
    return isinstance(step, Change) and step.takes


def decided_on(sandbox: Object) -> Basis:
    meta = sandbox.metadata
    owner = meta.controller
    return Basis(meta.uid, meta.generation, meta.deletion_timestamp is not None, None if owner is None else owner.uid)


def change(resource: Resource[Any], meta: Metadata, body: Body, why: str, *, takes: bool = False) -> Change:
    """A merge patch for one uid. `takes`: it replaces the list of owners, so it is pinned to the revision as well."""
    guard = {"uid": meta.uid, "resourceVersion": meta.resource_version} if takes else {"uid": meta.uid}
    patch = merge_patch({**body, "metadata": {**guard, **body.get("metadata", {})}})
    return Change(resource, meta.name, patch, why, takes=takes)


def delete(resource: Resource[Any], meta: Metadata, why: str, *, pinned: bool = False) -> Delete:
    return Delete(resource, meta.name, Preconditions(meta.uid, meta.revision if pinned else None), why)


def controlled_by(sandbox: Sandbox) -> list[Body]:
    """The ownerReferences of an object that the sandbox makes."""
    return [msgspec.to_builtins(owner_reference(sandbox))]


def tracking(sandbox: Sandbox) -> dict[str, str]:
    """The label of everything that the sandbox owns. It is a hash of the name, so it can collide."""
    return {SANDBOX_NAME_HASH: name_hash(sandbox.metadata.name)}


def identity(sandbox: Sandbox) -> dict[str, str]:
    """The labels that no pod of another sandbox has: what a Service selects."""
    meta = sandbox.metadata
    return {SANDBOX_NAME_HASH: name_hash(meta.name), SANDBOX_UID: meta.uid}


def adopted_metadata(obj: Object, sandbox: Sandbox) -> Body:
    """The metadata half of an adoption, as a merge patch. The references of others stay."""
    others = [msgspec.to_builtins(owner) for owner in obj.metadata.owner_references]
    labels: dict[str, Any] = {
        key: value for key, value in tracking(sandbox).items() if obj.metadata.labels.get(key) != value
    }
    if ADOPTABLE in obj.metadata.labels:
        labels[ADOPTABLE] = None
    return {"ownerReferences": others + controlled_by(sandbox), **({"labels": labels} if labels else {})}
