"""What a plan is made of: single writes as values, each carrying the uid that it was planned for."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sandpool.kube.api import Preconditions
from sandpool.model.metadata import Metadata, Object
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


@dataclass(frozen=True, slots=True)
class Plan:
    steps: tuple[Step, ...] = ()
    refused: tuple[str, ...] = ()  # what was asked for and cannot be done before somebody changes something
    expired: bool = False
    look_again_at: datetime | None = None
    decided_on: tuple[str, int] = ("", 0)  # uid and generation of the sandbox that was looked at


def decided_on(sandbox: Object) -> tuple[str, int]:
    return sandbox.metadata.uid, sandbox.metadata.generation


def change(resource: Resource[Any], meta: Metadata, body: Body, why: str, *, pinned: bool = False) -> Change:
    """A merge patch of one very object. `pinned`: it replaces a list, so nothing may have changed since it was read."""
    guard = {"uid": meta.uid, **({"resourceVersion": meta.resource_version} if pinned else {})}
    return Change(resource, meta.name, merge_patch({**body, "metadata": {**guard, **body.get("metadata", {})}}), why)


def delete(resource: Resource[Any], meta: Metadata, why: str, *, pinned: bool = False) -> Delete:
    return Delete(resource, meta.name, Preconditions(meta.uid, meta.revision if pinned else None), why)
