"""The transfer: the one patch that makes a pool's member a claim's own.

It tests the sandbox's uid and the uid of the pool at the place of the controlling owner, so it fails only when somebody
else took the sandbox, or it is another object of that name; never because a status moved on. What follows the tests cannot
fail on a sandbox that has labels, as every member has. The spec is left alone, and so is the generation, unless the claim
wants more metadata on its pod, or the spec lets the pod be evicted only because nobody had claimed it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgspec

from sandpool.controllers.claim import pod_metadata
from sandpool.controllers.claim.blueprint import owner_reference
from sandpool.model import labels
from sandpool.model.claim import SandboxClaim
from sandpool.model.labels import LaunchType
from sandpool.model.metadata import Key, Metadata
from sandpool.model.patches import Json, Patch, json_patch
from sandpool.model.sandbox import PodMetadata, Sandbox
from sandpool.model.template import SandboxTemplate

Operation = dict[str, Json]
POOLS_OWN = (labels.WARM_POOL, labels.TEMPLATE_HASH, labels.POD_TEMPLATE_HASH)
"""Labels that only an unclaimed member carries."""


class Transfers:
    """Announces which sandbox is about to be transferred, when the patch is sent and not yet durable: a hint for the router to prewarm."""

    def __init__(self) -> None:
        self._listeners: list[Callable[[Key], object]] = []

    def subscribe(self, listener: Callable[[Key], object]) -> None:
        self._listeners.append(listener)

    def announce(self, sandbox: Key) -> None:
        for listener in self._listeners:
            listener(sandbox)


def transfer(
    member: Sandbox, claim: SandboxClaim, template: SandboxTemplate | None = None, *, pinned: bool = False
) -> Patch:
    """`member` as last observed, controlled by its pool; `template` only shows which annotations are its own. `pinned`: the patch will be applied
    to exactly this revision, so labels that are absent need not be added before they are removed."""
    index, pool = controlling_owner(member.metadata)
    owner = f"/metadata/ownerReferences/{index}"
    return json_patch(
        [
            {"op": "test", "path": "/metadata/uid", "value": str(member.metadata.uid)},
            {"op": "test", "path": f"{owner}/uid", "value": pool},
            *_absent_annotations(member),
            {"op": "replace", "path": owner, "value": msgspec.to_builtins(owner_reference(claim))},
            *_labels(claim, member.metadata.labels if pinned else None),
            *_annotations(member, claim),
            *_pod_metadata(member, claim, template),
        ]
    )


def controlling_owner(meta: Metadata) -> tuple[int, str]:
    """The index and the uid of the controlling owner reference."""
    for index, owner in enumerate(meta.owner_references):
        if owner.controller:
            return index, str(owner.uid)
    raise ValueError(f"sandbox {meta.key} has no controlling owner, so there is nobody to take it from")


def pointer(*parts: str) -> str:
    """A JSON pointer: `/` and `~` inside a part are escaped."""
    return "".join("/" + part.replace("~", "~0").replace("/", "~1") for part in parts)


def _labels(claim: SandboxClaim, present: Mapping[str, str] | None) -> Iterator[Operation]:
    """`present`: labels that certainly exist; None if that is unknown."""
    yield {"op": "add", "path": _LAUNCH_TYPE, "value": LaunchType.WARM.value}
    yield {"op": "add", "path": _CLAIM_UID, "value": str(claim.metadata.uid)}
    creator = claim.metadata.labels.get(labels.CREATED_BY)
    if creator:
        yield {"op": "add", "path": _CREATED_BY, "value": creator}
    for key in POOLS_OWN if creator else _NOT_A_CLAIMS:
        if present is None:
            yield from _WITHOUT[key]
        elif key in present:
            yield _WITHOUT[key][1]


def _without(key: str) -> tuple[Operation, ...]:
    """Removing an absent label fails, and it may be absent by now: so it is added first."""
    path = pointer("metadata", "labels", key)
    return {"op": "add", "path": path, "value": ""}, {"op": "remove", "path": path}


_LAUNCH_TYPE, _CLAIM_UID, _CREATED_BY = (
    pointer("metadata", "labels", key) for key in (labels.LAUNCH_TYPE, labels.CLAIM_UID, labels.CREATED_BY)
)
_NOT_A_CLAIMS = (*POOLS_OWN, labels.CREATED_BY)
_WITHOUT = {key: _without(key) for key in _NOT_A_CLAIMS}


def _absent_annotations(member: Sandbox) -> Iterator[Operation]:
    """A member always has annotations. If it has lost them, a test makes sure that none added meanwhile are overwritten."""
    if not member.metadata.annotations:
        yield {"op": "test", "path": "/metadata/annotations", "value": None}


def _annotations(member: Sandbox, claim: SandboxClaim) -> Iterator[Operation]:
    present = member.metadata.annotations
    wanted = {labels.POD_NAME: member.metadata.name}
    if trace := claim.metadata.annotations.get(labels.TRACE_CONTEXT):
        wanted[labels.TRACE_CONTEXT] = trace
    if not present:
        yield {"op": "add", "path": "/metadata/annotations", "value": wanted}
        return
    for key, value in wanted.items():
        if present.get(key) != value:
            yield {"op": "add", "path": pointer("metadata", "annotations", key), "value": value}


def _pod_metadata(member: Sandbox, claim: SandboxClaim, template: SandboxTemplate | None) -> Iterator[Operation]:
    """Starts from the metadata that the member was made with, not from the present template: its spec is as old. Members made by
    another implementation say in their spec that they may be evicted; ours do not."""
    additional = claim.spec.additional_pod_metadata or PodMetadata()
    present = member.spec.pod_template.metadata or PodMetadata()
    annotations = _without_pools_eviction(present.annotations, template)
    if not (additional.labels or additional.annotations) and annotations == present.annotations:
        return
    base = PodMetadata(
        labels={key: value for key, value in present.labels.items() if key not in POOLS_OWN},
        annotations=annotations,
    )
    value: Any = msgspec.to_builtins(pod_metadata.merge(base, additional))
    yield {"op": "add", "path": "/spec/podTemplate/metadata", "value": value}


def _without_pools_eviction(annotations: dict[str, str], template: SandboxTemplate | None) -> dict[str, str]:
    """Idle members may be evicted and claimed ones not, unless the template says so itself."""
    ours = template.spec.pod_template.metadata if template is not None else None
    if annotations.get(labels.SAFE_TO_EVICT) != "true" or (ours and labels.SAFE_TO_EVICT in ours.annotations):
        return annotations
    return {key: value for key, value in annotations.items() if key != labels.SAFE_TO_EVICT}
