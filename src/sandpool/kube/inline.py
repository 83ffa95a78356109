"""Inline hooks: a controller in the server's own process adds its decision to the commit of the write that causes it.

A server that runs the controllers itself need not store an object, notify them and wait for their writes. Before it stores a new object it calls the
hook that is registered for that resource, and stores what the hook adds in the same commit: all of it or nothing. Where there is no hook, as in
a cluster whose controllers run elsewhere, and where the hook adds nothing, the object is stored alone and reconciled as usual.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, TypeVar

import msgspec

from sandpool.model.metadata import Key, Object, Revision
from sandpool.model.patches import Patch
from sandpool.model.resource import Resource

T = TypeVar("T", bound=Object)
T_contra = TypeVar("T_contra", bound=Object, contravariant=True)


class InlineChange(msgspec.Struct, frozen=True):
    """A change of another object in the same commit."""

    resource: Resource[Any]
    key: Key
    revision: Revision  # the state it was decided on; if the object has another one by now, nothing is added
    patch: Patch


class Addition(Protocol[T_contra]):
    """What a hook adds to one commit. Its reservations last until either `committed` or `abandoned` is called, once.

    The commit holds, in this order: the new object as it was sent, each of `changes`, and the object again with `annotations` and `status`.
    """

    changes: Sequence[InlineChange]
    annotations: Mapping[str, str]  # added to those of the object
    status: Mapping[str, Any]  # of the object, as JSON

    def submitted(self, created: Revision, changed: Sequence[Revision], final: Revision) -> None:
        """The commit is on its way to the disk with these revisions: of the object as it was sent, of `changes`, of the object at last."""
        ...

    def committed(self, final: T_contra, changed: Sequence[Any]) -> None:
        """The commit is durable; these are the object and those of `changes` as they are stored."""
        ...

    def abandoned(self) -> None:
        """Nothing of it is stored, and nothing will be."""
        ...


class Annotate(msgspec.Struct, frozen=True):
    """The object is stored alone, with these annotations if there is room for them."""

    annotations: Mapping[str, str]


class Refusal(msgspec.Struct, frozen=True):
    """The object is not stored. The client gets 429 and may try again later."""

    retry_after: int  # seconds
    why: str  # continues a sentence that begins with the object's name


class InlineHook(Protocol[T_contra]):
    """Decides about an object of a controller's kind before it is stored."""

    def creating(self, obj: T_contra) -> Addition[T_contra] | Annotate | Refusal | None:
        """Called with an object that is about to be created and has everything but a revision. None: it is stored as it is."""
        ...

    def delay(self, namespace: str, body: Mapping[str, Any]) -> float:
        """Seconds to hold a create request before it is processed. `body` is not validated yet."""
        ...

    def overflow(self, namespace: str, body: Mapping[str, Any]) -> Refusal | None:
        """Called instead of `delay` when no more requests can be held. None: this one need not be held."""
        ...


class InlineHooks:
    """The hooks of one server. A controller registers its own; the newest one of a resource counts, as after a change of leaders."""

    def __init__(self) -> None:
        self.by_name: dict[tuple[str, str], InlineHook[Any]] = {}
        """By group and plural, which are looked up for every new object: faster than by resource, whose hash is Python's."""

    def register(self, resource: Resource[T], hook: InlineHook[T]) -> None:
        self.by_name[resource.group, resource.plural] = hook
