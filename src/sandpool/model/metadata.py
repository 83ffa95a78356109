"""Object metadata: names, identity, revision, owners. Also objects of any kind as raw JSON with typed metadata."""

from __future__ import annotations

from datetime import datetime
from typing import Any, NamedTuple, NewType, Protocol

import msgspec

Uid = NewType("Uid", str)
Revision = NewType("Revision", int)
"""A resourceVersion as a number. Kubernetes documents them as comparable within one resource since 1.35."""

NO_REVISION = Revision(0)

_tuple = tuple.__new__


class Model(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel", gc=False):
    """Base of every wire type: immutable, snake_case here and camelCase on the wire, unknown fields dropped.

    With gc=False the garbage collector does not track tens of thousands of cached objects. They are trees (never cycles), so reference
    counting alone frees them. Because unknown fields are dropped, we never PUT.
    """


class Key(NamedTuple):
    """The namespace and name of an object. A work item holds nothing else."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


class OwnerReference(Model, frozen=True):
    api_version: str
    kind: str
    name: str
    uid: Uid
    controller: bool | None = None
    block_owner_deletion: bool | None = None

    @property
    def group(self) -> str:
        """The API group. Owners are matched by group and kind, never by version, because old references keep old versions."""
        group, slash, _ = self.api_version.partition("/")
        return group if slash else ""


class Metadata(Model, frozen=True):
    name: str = ""
    generate_name: str = ""
    namespace: str = ""
    uid: Uid = Uid("")
    resource_version: str = ""
    generation: int = 0
    creation_timestamp: datetime | None = None
    deletion_timestamp: datetime | None = None
    deletion_grace_period_seconds: int | None = None
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    owner_references: tuple[OwnerReference, ...] = ()
    finalizers: tuple[str, ...] = ()

    @property
    def key(self) -> Key:
        return _tuple(Key, (self.namespace, self.name))  # the same as Key(...), one call fewer

    @property
    def revision(self) -> Revision:
        return Revision(int(self.resource_version)) if self.resource_version else NO_REVISION

    @property
    def controller(self) -> OwnerReference | None:
        """The one owner that controls this object, if any."""
        owners = self.owner_references
        if not owners:
            return None
        if owners[0].controller:  # nearly always the only one
            return owners[0]
        return next((owner for owner in owners if owner.controller), None)

    @property
    def leaving(self) -> bool:
        return self.deletion_timestamp is not None


class Object(Protocol):
    """Anything with metadata. This is all that loop/ and kube/ know about kinds."""

    @property
    def metadata(self) -> Metadata: ...


class PartialObject(Model, frozen=True):
    """Only the metadata of an object of any kind: enough for selectors, owners and garbage collection."""

    metadata: Metadata = Metadata()
    api_version: str = ""
    kind: str = ""


class RawObject:
    """An object that keeps every field. `body` is its JSON and must not be changed in place."""

    __slots__ = ("body", "metadata")

    metadata: Metadata
    body: dict[str, Any]

    def __init__(self, body: dict[str, Any]) -> None:
        if not isinstance(body, dict):
            raise TypeError("Expected `object`: the JSON of an object has members")
        self.body = body
        self.metadata = msgspec.convert(body.get("metadata") or {}, Metadata)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RawObject) and self.body == other.body

    __hash__ = None  # type: ignore[assignment]  # it holds a dict

    def __repr__(self) -> str:
        return f"RawObject({self.body.get('kind', '')} {self.metadata.key})"
