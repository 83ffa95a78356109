"""Decides what a template needs next. Pure: no I/O, no clock, no logging."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sandpool.controllers.template.policy import Options, marked, owned, policy_body, policy_name, policy_spec, says
from sandpool.kube.api import Preconditions
from sandpool.model import labels
from sandpool.model.core import NetworkPolicy
from sandpool.model.metadata import Metadata
from sandpool.model.names import name_hash
from sandpool.model.patches import Json, Patch, json_patch, merge_patch
from sandpool.model.template import SandboxTemplate


@dataclass(frozen=True, slots=True)
class TemplateView:
    """Everything the decision may depend on. Without a template there may still be its policy."""

    name: str
    template: SandboxTemplate | None
    policy: NetworkPolicy | None = None
    protected: bool = False  # the policy selects an existing sandbox or pod
    rival: str = ""  # an earlier template whose name has the same hash, so that its policy selects the same pods


@dataclass(frozen=True, slots=True)
class PatchTemplate:
    """Set the template's label."""

    patch: Patch

    def __str__(self) -> str:
        return "put the hash of its name on the template"


@dataclass(frozen=True, slots=True)
class CreatePolicy:
    """Create the NetworkPolicy."""

    body: dict[str, Any]

    def __str__(self) -> str:
        return f"create networkpolicy {self.body['metadata']['name']}"


@dataclass(frozen=True, slots=True)
class PatchPolicy:
    """Repair the NetworkPolicy."""

    name: str
    patch: Patch

    def __str__(self) -> str:
        return f"patch networkpolicy {self.name}: make it what the template says"


@dataclass(frozen=True, slots=True)
class DeletePolicy:
    """Delete the NetworkPolicy."""

    name: str
    preconditions: Preconditions

    def __str__(self) -> str:
        return f"delete networkpolicy {self.name}: nobody needs it any more"


Step = PatchTemplate | CreatePolicy | PatchPolicy | DeletePolicy


@dataclass(frozen=True, slots=True)
class Plan:
    """The steps for one template."""

    steps: tuple[Step, ...] = ()
    conflict: str = ""  # why the policy cannot be created, for an Event

    @property
    def creates(self) -> bool:
        return any(isinstance(step, CreatePolicy) for step in self.steps)


def plan_template(view: TemplateView, options: Options) -> Plan:
    template, policy = view.template, view.policy
    ours = policy is not None and (marked(policy.metadata, view.name) or owned(policy.metadata, view.name))
    if policy is not None and policy.metadata.leaving:
        # The next one is made when it is gone.
        return Plan(_label(template))
    if template is None:
        return Plan() if policy is None else _after_the_template(view, policy, ours)
    if template.metadata.leaving:
        # Its policy loses its owner now: otherwise it would be garbage-collected with the template.
        free = policy is not None and owned(policy.metadata, view.name)
        return Plan((_repair(policy, view.name, None),)) if free and policy is not None else Plan()
    if not template.spec.managed_network:
        return Plan((*((_delete(policy),) if ours and policy is not None else ()), *_label(template)))
    if policy is None:
        if view.rival:
            return Plan(_label(template), _collision(view.name, view.rival))
        return Plan((CreatePolicy(policy_body(template, options)), *_label(template)))
    if not ours:
        return Plan(_label(template), _foreign_policy(view.name))
    spec = policy_spec(view.name, template.spec, options)
    if marked(policy.metadata, view.name) and says(policy, spec):
        return Plan(_label(template))
    return Plan((_repair(policy, view.name, None if says(policy, spec) else spec), *_label(template)))


def _after_the_template(view: TemplateView, policy: NetworkPolicy, ours: bool) -> Plan:
    """The policy of a deleted template stays until it protects nothing any more. Foreign policies are left alone."""
    if not ours or (view.protected and marked(policy.metadata, view.name)):
        return Plan()
    if view.protected:
        return Plan((_repair(policy, view.name, None),))
    return Plan((_delete(policy),))


def _label(template: SandboxTemplate | None) -> tuple[Step, ...]:
    if template is None or template.metadata.leaving:
        return ()
    meta, value = template.metadata, name_hash(template.metadata.name)
    if meta.labels.get(labels.TEMPLATE_REF_HASH) == value:
        return ()
    body = {"metadata": {"uid": str(meta.uid), "labels": {labels.TEMPLATE_REF_HASH: value}}}
    return (PatchTemplate(merge_patch(body)),)


def _repair(policy: NetworkPolicy, template: str, spec: dict[str, Any] | None) -> PatchPolicy:
    """Restores the policy. The spec is replaced as a whole: merging would leave foreign selectors in place. The patch is pinned to the
    observed revision."""
    meta = policy.metadata
    operations: list[dict[str, Json]] = [
        {"op": "test", "path": "/metadata/uid", "value": str(meta.uid)},
        {"op": "replace", "path": "/metadata/resourceVersion", "value": meta.resource_version},
    ]
    operations += _marks("labels", meta.labels, labels.TEMPLATE_REF_HASH, name_hash(template))
    operations += _marks("annotations", meta.annotations, labels.TEMPLATE_REF, template)
    operations += _freed(meta)
    if spec is not None:
        operations.append({"op": "add", "path": "/spec", "value": spec})
    return PatchPolicy(meta.name, json_patch(operations))


def _marks(field: str, present: dict[str, str], key: str, value: str) -> list[dict[str, Json]]:
    if present.get(key) == value:
        return []
    return [{"op": "add", "path": f"/metadata/{field}", "value": {**present, key: value}}]


def _freed(meta: Metadata) -> list[dict[str, Json]]:
    for index, owner in enumerate(meta.owner_references):
        if owner.controller:
            return [{"op": "remove", "path": f"/metadata/ownerReferences/{index}"}]
    return []


def _delete(policy: NetworkPolicy) -> DeletePolicy:
    meta = policy.metadata
    return DeletePolicy(meta.name, Preconditions(uid=meta.uid, revision=meta.revision))


def _collision(template: str, rival: str) -> str:
    return (
        f"the names {template} and {rival} have the same hash, so a NetworkPolicy of this template would also let traffic "
        f"through to sandboxes of {rival}: create the template under another name"
    )


def _foreign_policy(template: str) -> str:
    name = policy_name(template)
    return (
        f"NetworkPolicy {name} is not this template's and is left alone, so no sandbox is made from {template}: delete it, or "
        "set spec.networkPolicyManagement of the template to Unmanaged"
    )
