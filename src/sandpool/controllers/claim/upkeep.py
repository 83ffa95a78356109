"""What has to be put right on the sandbox of a bound claim: marks that old versions did not write, and pod metadata that was edited.

Built on what the sandbox was made with; the template it came from only tells whose a key is. A running sandbox never follows the
pool to another template: it has that template's spec and stays behind its NetworkPolicy.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sandpool.controllers.claim import pod_metadata
from sandpool.controllers.claim.view import warm
from sandpool.loop.errors import Terminal
from sandpool.model import labels
from sandpool.model.claim import SandboxClaim
from sandpool.model.conditions import find
from sandpool.model.labels import LaunchType
from sandpool.model.names import name_hash
from sandpool.model.patches import Patch, merge_patch
from sandpool.model.reasons import Reason, Type
from sandpool.model.sandbox import PodMetadata, Sandbox
from sandpool.model.template import SandboxTemplate

Delta = dict[str, str | None]


def upkeep(
    claim: SandboxClaim, sandbox: Sandbox, origin: SandboxTemplate | None, domains: Sequence[str]
) -> Patch | None:
    """None if nothing is to be done. Raises Terminal if what the claim asks for now cannot be done."""
    refuse_late_wishes(claim, sandbox)
    marks = missing_marks(claim, sandbox)
    additional = claim.spec.additional_pod_metadata or PodMetadata()
    pod_metadata.check(additional, domains)
    pod = _pod_delta(claim, sandbox, origin, additional, domains)
    if not marks and not pod:
        return None
    body: dict[str, Any] = {"metadata": {"uid": str(sandbox.metadata.uid), **({"labels": marks} if marks else {})}}
    if pod:
        body["spec"] = {"podTemplate": {"metadata": pod}}
    return merge_patch(body)


def refuse_late_wishes(claim: SandboxClaim, sandbox: Sandbox) -> None:
    if claim.spec.customised and warm(sandbox):
        field = "spec.env" if claim.spec.env else "spec.volumeClaimTemplates"
        raise Terminal(
            Reason.CONFIGURATION_TROUBLE,
            f"{field} was set after sandbox {sandbox.metadata.name} was handed out, which cannot have it; "
            "make another claim",
        )


def missing_marks(claim: SandboxClaim, sandbox: Sandbox) -> dict[str, str]:
    """Labels that a claim's sandbox must have; one that is there is never overwritten."""
    there, missing = sandbox.metadata.labels, {}
    if labels.LAUNCH_TYPE not in there:
        own_name = sandbox.metadata.name == claim.metadata.name
        missing[labels.LAUNCH_TYPE] = (LaunchType.COLD if own_name else LaunchType.WARM).value
    template = sandbox.metadata.annotations.get(labels.TEMPLATE_REF, "")
    if template and labels.TEMPLATE_REF_HASH not in there:
        missing[labels.TEMPLATE_REF_HASH] = name_hash(template)
    return missing


def _pod_delta(
    claim: SandboxClaim,
    sandbox: Sandbox,
    origin: SandboxTemplate | None,
    wanted: PodMetadata,
    domains: Sequence[str],
) -> dict[str, Delta]:
    present = sandbox.spec.pod_template.metadata or PodMetadata()
    base = (origin.spec.pod_template.metadata if origin is not None else None) or PodMetadata()
    ready = find(claim.status.conditions, Type.READY)
    edited = ready is not None and ready.observed_generation != claim.metadata.generation
    removing = edited and origin is not None  # without the template nobody can say whose a key is
    parts = {
        "labels": _delta("labels", present.labels, wanted.labels, base.labels),
        "annotations": _delta("annotations", present.annotations, wanted.annotations, base.annotations),
    }
    if removing:
        parts["labels"] |= {
            key: None
            for key in _dropped(present.labels, wanted.labels, base.labels)
            if pod_metadata.allowed_label(key, domains)
        }
        parts["annotations"] |= {
            key: None
            for key in _dropped(present.annotations, wanted.annotations, base.annotations)
            if pod_metadata.allowed_annotation(key)
        }
    return {field: delta for field, delta in parts.items() if delta}


def _delta(field: str, present: Mapping[str, str], wanted: Mapping[str, str], base: Mapping[str, str]) -> Delta:
    delta: Delta = {}
    for key, value in sorted(wanted.items()):
        if present.get(key) == value:
            continue
        if key in base and base[key] != value:
            raise Terminal(
                Reason.INVALID_METADATA,
                f'{pod_metadata.FIELD}.{field}["{key}"] is {value!r} but the template says {base[key]!r}: '
                "leave it out or give it the template's value",
            )
        delta[key] = value
    return delta


def _dropped(present: Mapping[str, str], wanted: Mapping[str, str], base: Mapping[str, str]) -> list[str]:
    return [key for key in sorted(present) if key not in wanted and key not in base]
