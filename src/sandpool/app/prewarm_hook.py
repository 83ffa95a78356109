"""An Api that tells of a sandbox that is about to be handed over: when the patch is sent, not when the disk has it.

Only for getting ready in between. Nobody may act on it as if it had happened.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from sandpool.controlplane.api import LocalApi
from sandpool.model.kinds import SANDBOXES
from sandpool.model.metadata import Key, Object
from sandpool.model.patches import Patch, PatchType
from sandpool.model.resource import Resource

T = TypeVar("T", bound=Object)

OWNERS = "/metadata/ownerReferences"


class ForeseenApi(LocalApi):
    foresee: Callable[[Key], object] | None = None

    async def patch(self, resource: Resource[T], name: str, patch: Patch, namespace: str = "") -> T:
        if self.foresee is not None and resource is SANDBOXES and changes_owner(patch):
            self.foresee(Key(namespace, name))
        return await super().patch(resource, name, patch, namespace)


def changes_owner(patch: Patch) -> bool:
    if patch.type is not PatchType.JSON or not isinstance(patch.body, list):
        return False
    return any(
        isinstance(one, dict) and one.get("op") == "replace" and str(one.get("path")).startswith(OWNERS)
        for one in patch.body
    )
