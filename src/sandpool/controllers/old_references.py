"""Warns about owner references in an API version that is not served: a cluster's garbage collector never resolves them.

Objects keep the references that an earlier implementation wrote. Our controllers match owners by group and kind; the garbage
collector does not, so what such an owner owns would outlive it. The warning is logged once and says where to read what to do.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from sandpool.loop.cache import Cache
from sandpool.model.kinds import OURS
from sandpool.model.metadata import Object
from sandpool.telemetry.log import logger

log = logger(__name__)

GUIDE = "docs/how-to/replace-another-controller.md"
_VERSIONS = {(each.group, each.kind): each.api_version for each in OURS}


def outdated(obj: Object) -> bool:
    return any(
        _VERSIONS.get((owner.group, owner.kind), owner.api_version) != owner.api_version
        for owner in obj.metadata.owner_references
    )


def warn_of_old_references(caches: Iterable[Cache[Any]]) -> None:
    found = [f"{cache.resource.kind} {obj.metadata.key}" for cache in caches for obj in cache if outdated(obj)]
    if found:
        log.warning(
            "owners are named in a version that is not served", objects=len(found), such_as=min(found), see=GUIDE
        )
