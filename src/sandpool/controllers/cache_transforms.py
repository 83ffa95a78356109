"""Objects of one pool are alike: what they have in common is kept once, not once for each member.

Of sandboxes that is their spec, their labels and their owner, of sandboxes and pods the keys and most values of what they are
marked with, their times and their conditions. A name or a uid is one text, whoever refers to it: `sys.intern` forgets what nobody
uses. A spec also holds on to the text that it was read from, which is the whole object. Objects are never changed in place, so
nobody notices that they share.
"""

from __future__ import annotations

from sys import intern
from typing import Any

from msgspec.structs import replace

from sandpool.model.labels import TEMPLATE_REF_HASH
from sandpool.model.metadata import Metadata, OwnerReference
from sandpool.model.sandbox import Sandbox

Marks = dict[str, str]
"""Labels or annotations."""

_MOST = 1024  # templates
_MOST_VALUES = 4096


class Once(dict[Any, Any]):
    """`once[value]` is the value that was first seen equal to this one; of a tuple, each part as well. When it is full it begins
    anew: what is shared by then stays shared. A dict, because what is known is found without a call: every step of every
    object asks."""

    def __init__(self, most: int = _MOST_VALUES) -> None:
        super().__init__()
        self._most = most

    def __missing__(self, value: Any) -> Any:
        shared = tuple([self[part] for part in value]) if type(value) is tuple else value
        if len(self) >= self._most:
            self.clear()
        self[shared] = shared
        return shared


class Alike:
    """What a cache of sandboxes remembers of each; one for each cache."""

    def __init__(self) -> None:
        self._examples: dict[tuple[str, str], Sandbox] = {}  # of each template, the last one with a spec of its own
        self._once = Once()

    def __call__(self, sandbox: Sandbox) -> Sandbox:
        """The same sandbox, which shares with others what is equal."""
        meta = sandbox.metadata
        mark = meta.labels.get(TEMPLATE_REF_HASH)
        if mark is None:
            return sandbox
        place = (meta.namespace, mark)
        example = self._examples.get(place)
        if example is None or example.spec != sandbox.spec:
            return self._example(place, sandbox)
        if example.spec is sandbox.spec:
            return sandbox  # it has been here before
        its = example.metadata
        if its.labels == meta.labels and its.owner_references == meta.owner_references:
            labels, owners = its.labels, its.owner_references
        else:
            labels, owners = interned(meta.labels), owners_of(meta)
        once, status = self._once, sandbox.status
        return Sandbox(
            metadata=condensed(meta, labels, interned(meta.annotations), owners, once),
            spec=example.spec,
            status=replace(status, conditions=once[status.conditions], node_name=intern(status.node_name)),
        )

    def _example(self, place: tuple[str, str], sandbox: Sandbox) -> Sandbox:
        meta, status = sandbox.metadata, sandbox.status
        meta = condensed(meta, interned(meta.labels), interned(meta.annotations), owners_of(meta), self._once)
        status = replace(status, conditions=self._once[status.conditions])
        if len(self._examples) >= _MOST:
            self._examples.clear()
        example = self._examples[place] = Sandbox(metadata=meta, spec=sandbox.spec, status=status)
        return example


def condensed(
    meta: Metadata, labels: Marks, annotations: Marks, owners: tuple[OwnerReference, ...], once: Once
) -> Metadata:
    """The same metadata with these parts, which equal its own."""
    return replace(
        meta,
        name=intern(meta.name),
        namespace=intern(meta.namespace),
        uid=intern(meta.uid),
        creation_timestamp=once[meta.creation_timestamp],
        labels=labels,
        annotations=annotations,
        owner_references=owners,
    )


def interned(marks: Marks) -> Marks:
    """Labels or annotations whose texts are shared with all others that say the same."""
    return dict(zip(map(intern, marks), map(intern, marks.values()), strict=True))


def owners_of(meta: Metadata) -> tuple[OwnerReference, ...]:
    return tuple(map(_owner, meta.owner_references))


def _owner(owner: OwnerReference) -> OwnerReference:
    return replace(
        owner,
        api_version=intern(owner.api_version),
        kind=intern(owner.kind),
        name=intern(owner.name),
        uid=intern(owner.uid),
    )
