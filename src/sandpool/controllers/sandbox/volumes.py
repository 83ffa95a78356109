"""Storage that outlives the pod: one PersistentVolumeClaim per template, owned by the sandbox before any pod may mount it. Pure."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import msgspec

from sandpool.controllers.sandbox.steps import Body, Create, Step, adopted_metadata, change, controlled_by, tracking
from sandpool.controllers.sandbox.view import Holding, SandboxView, adoptable, claim_keys, holding
from sandpool.model.core import PersistentVolumeClaim
from sandpool.model.kinds import PERSISTENT_VOLUME_CLAIMS
from sandpool.model.labels import ADOPTABLE, reserved_annotation, reserved_label
from sandpool.model.sandbox import Sandbox, VolumeClaimTemplate


@dataclass(frozen=True, slots=True)
class Storage:
    """The steps for the PersistentVolumeClaims, what cannot be done, and whether a pod has to wait for one that is being deleted."""

    steps: tuple[Step, ...] = ()
    refused: tuple[str, ...] = ()
    waiting: bool = False

    @property
    def usable(self) -> bool:
        """Whether every PersistentVolumeClaim is ours once the steps are done."""
        return not self.refused and not self.waiting


_NONE = Storage()


def plan_volumes(view: SandboxView) -> Storage:
    templates = view.sandbox.spec.volume_claim_templates
    if not templates:
        return _NONE
    if wrong := _wrong_names(templates):
        return Storage(refused=(wrong,))
    steps: list[Step] = []
    refused: list[str] = []
    waiting = False
    for template, key, claim in zip(templates, claim_keys(view.sandbox), view.claims, strict=True):
        if claim is None:
            steps.append(_create(view.sandbox, template, key.name))
        elif view.departing(claim) or holding(claim, view.sandbox) is Holding.PREDECESSOR:
            waiting = True
        elif holding(claim, view.sandbox) is Holding.NOBODY and adoptable(claim, view.sandbox):
            metadata = adopted_metadata(claim, view.sandbox)
            steps.append(
                change(PERSISTENT_VOLUME_CLAIMS, claim.metadata, {"metadata": metadata}, "take it over", takes=True)
            )
        elif holding(claim, view.sandbox) is not Holding.OURS:
            refused.append(_refusal(claim))
    return Storage(tuple(steps), tuple(refused), waiting)


def merged_volumes(spec: Body, sandbox: Sandbox) -> Body:
    """The pod spec with a volume for each claim, last and in order, replacing volumes of the same name."""
    templates = sandbox.spec.volume_claim_templates or ()
    if not templates:
        return spec
    names = {template.metadata.name for template in templates}
    kept = [volume for volume in spec.get("volumes") or () if volume.get("name") not in names]
    ours = [
        {"name": template.metadata.name, "persistentVolumeClaim": {"claimName": key.name}}
        for template, key in zip(templates, claim_keys(sandbox), strict=True)
    ]
    return {**spec, "volumes": kept + ours}


def _create(sandbox: Sandbox, template: VolumeClaimTemplate, name: str) -> Create:
    """System labels and annotations of the template are ignored: `adoptable` would let any sandbox take the storage."""
    given = template.metadata
    labels = {key: value for key, value in given.labels.items() if not reserved_label(key)}
    annotations = {key: value for key, value in given.annotations.items() if not reserved_annotation(key)}
    metadata: Body = {
        "name": name,
        "namespace": sandbox.metadata.namespace,
        "labels": labels | tracking(sandbox),
        "ownerReferences": controlled_by(sandbox),
    }
    if annotations:
        metadata["annotations"] = annotations
    spec: Body = msgspec.json.decode(template.spec)
    body = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata, "spec": spec}
    return Create(PERSISTENT_VOLUME_CLAIMS, body)


def _wrong_names(templates: tuple[VolumeClaimTemplate, ...]) -> str:
    names = Counter(template.metadata.name for template in templates)
    if "" in names:
        return (
            "spec.volumeClaimTemplates: a template has no metadata.name; "
            "the field cannot change, so create the sandbox again with a name for each template"
        )
    twice = sorted(name for name, times in names.items() if times > 1)
    if twice:
        return (
            f"spec.volumeClaimTemplates: the name {twice[0]} is used twice; "
            "the field cannot change, so create the sandbox again with different names"
        )
    return ""


def _refusal(claim: PersistentVolumeClaim) -> str:
    name, owner = claim.metadata.name, claim.metadata.controller
    if owner is None:
        return (
            f"PersistentVolumeClaim {name} exists and nobody owns it; "
            f"label it {ADOPTABLE}=true to let this sandbox use it, or delete it"
        )
    return (
        f"PersistentVolumeClaim {name} belongs to {owner.kind} {owner.name}; rename the sandbox or the volume template"
    )
