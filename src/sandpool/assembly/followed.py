"""How much of a cluster the controllers follow, and how much they remember of it.

They see all pods and Services, because a sandbox may take over one that bears no label of ours, and must not mistake one that
has its name for its own. Of a pod that is under somebody else's control, and so never becomes a sandbox's, they remember only
who it is. Who cannot spare the traffic either asks the server for what a label marks: then an object without it is
noticed when its name turns out to be taken.
"""

from __future__ import annotations

from typing import Any

from sandpool.loop.cache import Cache
from sandpool.loop.reflector import Scope
from sandpool.model.kinds import OURS
from sandpool.model.labels import RESERVED_PREFIXES, SANDBOX_NAME_HASH
from sandpool.model.metadata import Metadata, Object
from sandpool.model.pod import Pod

_GROUPS = frozenset(each.group for each in OURS)


def remembered(pod: Pod) -> Pod:
    """The pod; of one that belongs to others, its name, its identity and its owner."""
    meta = pod.metadata
    owner = meta.controller
    if owner is None or owner.group in _GROUPS or any(key.startswith(RESERVED_PREFIXES) for key in meta.labels):
        return pod
    return Pod(
        metadata=Metadata(
            name=meta.name,
            namespace=meta.namespace,
            uid=meta.uid,
            resource_version=meta.resource_version,
            deletion_timestamp=meta.deletion_timestamp,
            owner_references=(owner,),
        )
    )


def tracked(obj: Object) -> bool:
    return SANDBOX_NAME_HASH in obj.metadata.labels


def scope(cache: Cache[Any], namespace: str, *, tracked: bool) -> Scope:
    """What to ask a server for."""
    where = namespace if cache.resource.namespaced else ""
    return Scope(where, labels=SANDBOX_NAME_HASH if tracked else "")
