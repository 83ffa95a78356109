"""What every object carries: its names, its identity, its revision, its owners."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple, NewType, Protocol

import msgspec

Uid = NewType("Uid", str)
Revision = NewType("Revision", int)
"""A resourceVersion as a number. Kubernetes documents them as comparable within one resource since 1.35."""

NO_REVISION = Revision(0)

_tuple = tuple.__new__


class Model(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel", gc=False):
    """Base of every wire type: immutable, snake_case here and camelCase on the wire, unknown fields dropped.

    gc=False keeps tens of thousands of cached objects out of the garbage collector's sight; the values are trees
    (never cycles), so reference counting alone frees them. Because unknown fields are dropped, we never PUT.
    """


class Key(NamedTuple):
    """The name of an object within its kind: all that a work item carries."""

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
        """Owners are matched by group and kind, never by version: old references keep old versions."""
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
        return _tuple(Key, (self.namespace, self.name))  # as Key(...) does, without a call in between

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
    """Anything with metadata: what the machinery in loop/ and kube/ knows about kinds."""

    @property
    def metadata(self) -> Metadata: ...


class PartialObject(Model, frozen=True):
    """Only the metadata of any object: enough for selectors, owners and collection."""

    metadata: Metadata = Metadata()
    api_version: str = ""
    kind: str = ""
