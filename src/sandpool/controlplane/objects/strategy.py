"""What differs from kind to kind, as data: who counts generations, who may be PUT blindly, who answers what.

A kind of ours behaves as a custom resource does on a real server; the core kinds each have their habits.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sandpool.model import kinds
from sandpool.model.patches import PatchType
from sandpool.model.resource import Resource

_CUSTOM_PATCHES = (PatchType.JSON, PatchType.MERGE)
_CORE_PATCHES = (PatchType.JSON, PatchType.MERGE, PatchType.STRATEGIC)


@dataclass(frozen=True, slots=True)
class Strategy:
    custom: bool = False  # a custom resource: a write of the status leaves all metadata alone
    generation: bool = False  # metadata.generation counts the changes of what is wanted
    unconditional: bool = True  # PUT without resourceVersion overwrites whatever is there
    put_creates: bool = False  # PUT of an absent name creates it
    returns_object: bool = False  # a finished delete answers the object, not a Status
    patches: tuple[PatchType, ...] = _CORE_PATCHES


CUSTOM = Strategy(custom=True, generation=True, unconditional=False, patches=_CUSTOM_PATCHES)
_PLAIN = Strategy()

_STRATEGIES: dict[Resource[Any], Strategy] = {
    **dict.fromkeys(kinds.OURS, CUSTOM),
    kinds.NAMESPACES: Strategy(returns_object=True),
    kinds.PODS: Strategy(generation=True, returns_object=True),
    kinds.SERVICES: Strategy(put_creates=True, returns_object=True),
    kinds.PERSISTENT_VOLUME_CLAIMS: Strategy(returns_object=True),
    kinds.EVENTS: Strategy(put_creates=True),
    kinds.SERVICE_ACCOUNTS: Strategy(returns_object=True),
    kinds.LEASES: Strategy(unconditional=False, put_creates=True),
    kinds.NETWORK_POLICIES: Strategy(generation=True),
    kinds.RUNTIME_CLASSES: Strategy(unconditional=False, put_creates=True),
}


# Asked for every write: a tuple of texts is found sooner than a resource, whose hash and equality are Python's.
_BY_NAME = {(resource.group, resource.plural): strategy for resource, strategy in _STRATEGIES.items()}


def strategy_of(resource: Resource[Any]) -> Strategy:
    return _BY_NAME.get((resource.group, resource.plural), _PLAIN)
