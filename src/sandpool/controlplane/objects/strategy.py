"""How the API server treats each kind, as data: generation, unconditional PUT, create by PUT, responses of deletes, patch types.

Our kinds behave like custom resources on a kube-apiserver; each core kind behaves as it does there.
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
    """How the API server treats one kind."""

    custom: bool = False  # a custom resource: a write to /status ignores metadata
    generation: bool = False  # metadata.generation counts changes outside metadata and status
    unconditional: bool = True  # PUT without resourceVersion overwrites the present state
    put_creates: bool = False  # PUT of an absent name creates it
    returns_object: bool = False  # a finished delete returns the object, not a Status
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


# Looked up for every write: a tuple of strings is faster than a Resource, whose hash and equality are written in Python.
_BY_NAME = {(resource.group, resource.plural): strategy for resource, strategy in _STRATEGIES.items()}


def strategy_of(resource: Resource[Any]) -> Strategy:
    return _BY_NAME.get((resource.group, resource.plural), _PLAIN)
