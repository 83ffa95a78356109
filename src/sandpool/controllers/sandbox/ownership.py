"""Taking an object that nobody holds. One patch: it becomes ours, and the label that allowed it is used up."""

from __future__ import annotations

from typing import Any

import msgspec

from sandpool.controllers.sandbox.steps import Body
from sandpool.controllers.sandbox.view import owner_reference
from sandpool.model.labels import ADOPTABLE, SANDBOX_NAME_HASH, SANDBOX_UID
from sandpool.model.metadata import Object
from sandpool.model.names import name_hash
from sandpool.model.sandbox import Sandbox


def controlled_by(sandbox: Sandbox) -> list[Body]:
    """The ownerReferences of an object that the sandbox makes."""
    return [msgspec.to_builtins(owner_reference(sandbox))]


def tracking(sandbox: Sandbox) -> dict[str, str]:
    """The label of everything that the sandbox keeps. Hashes of different names can be equal."""
    return {SANDBOX_NAME_HASH: name_hash(sandbox.metadata.name)}


def identity(sandbox: Sandbox) -> dict[str, str]:
    """The labels that no pod of another sandbox has: what a Service selects."""
    meta = sandbox.metadata
    return {SANDBOX_NAME_HASH: name_hash(meta.name), SANDBOX_UID: meta.uid}


def adopted_metadata(obj: Object, sandbox: Sandbox) -> Body:
    """The metadata half of an adoption, as a merge patch. The references of others stay."""
    others = [msgspec.to_builtins(owner) for owner in obj.metadata.owner_references]
    labels: dict[str, Any] = {
        key: value for key, value in tracking(sandbox).items() if obj.metadata.labels.get(key) != value
    }
    if ADOPTABLE in obj.metadata.labels:
        labels[ADOPTABLE] = None
    return {"ownerReferences": others + controlled_by(sandbox), **({"labels": labels} if labels else {})}
