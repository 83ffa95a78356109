"""What a plan is made of: single writes as values, each carrying the uid that it was planned for."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, NamedTuple

from sandpool.kube.api import Preconditions
from sandpool.model.metadata import Metadata, Object, Uid
from sandpool.model.patches import Patch, merge_patch
from sandpool.model.resource import Resource

Body = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Create:
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
    resource: Resource[Any]
    name: str
    patch: Patch
    why: str
    gated: bool = False  # only if no step before it is to be tried again
    takes: bool = False  # it makes an object ours that nobody holds

    def __str__(self) -> str:
        return f"patch {self.resource.singular} {self.name}: {self.why}"


@dataclass(frozen=True, slots=True)
class Delete:
    resource: Resource[Any]
    name: str
    preconditions: Preconditions
    why: str

    def __str__(self) -> str:
        return f"delete {self.resource.singular} {self.name}: {self.why}"


Step = Create | Change | Delete


class Basis(NamedTuple):
    """What of a sandbox a plan rests on. When it is another, the plan is void, and whatever changed it has woken us."""

    uid: Uid
    generation: int
    leaving: bool
    owner: Uid | None


@dataclass(frozen=True, slots=True)
class Plan:
    steps: tuple[Step, ...] = ()
    refused: tuple[str, ...] = ()  # what was asked for and cannot be done before somebody changes something
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
        """Without the steps by which something becomes the sandbox's."""
        steps = tuple(step for step in self.steps if not isinstance(step, Create) and not _takes(step))
        return replace(self, steps=steps, look_again_at=min(when, self.look_again_at or when))

    def within(self, earlier: Plan) -> Plan:
        """Takes only what an earlier plan would take, too. What came free since then has woken us."""
        return replace(self, steps=tuple(step for step in self.steps if not _takes(step) or step in earlier.steps))


def _takes(step: Step) -> bool:
    return isinstance(step, Change) and step.takes


def decided_on(sandbox: Object) -> Basis:
    meta = sandbox.metadata
    owner = meta.controller
    return Basis(meta.uid, meta.generation, meta.deletion_timestamp is not None, None if owner is None else owner.uid)


def change(resource: Resource[Any], meta: Metadata, body: Body, why: str, *, takes: bool = False) -> Change:
    """A merge patch of one very object. `takes`: it replaces the list of owners, so nothing may have changed since it was read."""
    guard = {"uid": meta.uid, "resourceVersion": meta.resource_version} if takes else {"uid": meta.uid}
    patch = merge_patch({**body, "metadata": {**guard, **body.get("metadata", {})}})
    return Change(resource, meta.name, patch, why, takes=takes)


def delete(resource: Resource[Any], meta: Metadata, why: str, *, pinned: bool = False) -> Delete:
    return Delete(resource, meta.name, Preconditions(meta.uid, meta.revision if pinned else None), why)
