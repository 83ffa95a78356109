"""The sandbox that a claim starts when it takes no warm one: the template's, with the claim's variables, storage and pod metadata. Pure.

Raises Terminal, with the reason of the claim's condition, if the template or the rules do not allow what the claim asks for. That is final until the
claim or the template changes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from sandpool.controllers.claim import pod_metadata
from sandpool.loop.errors import Terminal
from sandpool.model import labels
from sandpool.model.blueprint import secure_pod_spec
from sandpool.model.claim import EnvVar, SandboxClaim
from sandpool.model.container_defaults import NONE, ContainerDefaults
from sandpool.model.labels import LaunchType
from sandpool.model.metadata import Metadata, OwnerReference
from sandpool.model.names import name_hash
from sandpool.model.reasons import Reason
from sandpool.model.sandbox import PodMetadata, PodTemplate, Sandbox, SandboxSpec, VolumeClaimTemplate
from sandpool.model.template import InjectionPolicy, SandboxTemplate


def cold_sandbox(
    claim: SandboxClaim,
    template: SandboxTemplate,
    domains: Sequence[str] = pod_metadata.USER_DOMAINS,
    defaults: ContainerDefaults = NONE,
) -> Sandbox:
    """Named like the claim and controlled by it. The annotation with its pod's name is set before the pod exists, which saves a write."""
    source, asked, origin = template.spec, claim.spec, template.metadata.name
    pod_metadata.check(asked.additional_pod_metadata, domains)
    volumes = with_volumes(
        source.volume_claim_templates, asked.volume_claim_templates, source.volume_claim_templates_policy, origin
    )
    system = _identity(claim, template)
    ours = source.pod_template.metadata or PodMetadata()
    base = PodMetadata(labels={**ours.labels, **system}, annotations=ours.annotations)
    pod_spec = with_environment(secure_pod_spec(source, defaults), asked.env, source.env_vars_injection_policy, origin)
    return Sandbox(
        metadata=Metadata(
            name=claim.metadata.name,
            namespace=claim.metadata.namespace,
            labels={**system, labels.LAUNCH_TYPE: LaunchType.COLD.value},
            annotations=_annotations(claim, template),
            owner_references=(owner_reference(claim),),
        ),
        spec=SandboxSpec(
            pod_template=PodTemplate(
                spec=msgspec.Raw(msgspec.json.encode(pod_spec)),
                metadata=pod_metadata.merge(base, asked.additional_pod_metadata),
            ),
            volume_claim_templates=volumes,
            service=source.service,
        ),
    )


def owner_reference(claim: SandboxClaim) -> OwnerReference:
    meta = claim.metadata
    return OwnerReference(
        api_version=SandboxClaim.api_version,
        kind=SandboxClaim.kind,
        name=meta.name,
        uid=meta.uid,
        controller=True,
        block_owner_deletion=True,
    )


def _identity(claim: SandboxClaim, template: SandboxTemplate) -> dict[str, str]:
    marks = {
        labels.CLAIM_UID: str(claim.metadata.uid),
        labels.TEMPLATE_REF_HASH: name_hash(template.metadata.name),
    }
    if creator := claim.metadata.labels.get(labels.CREATED_BY):
        marks[labels.CREATED_BY] = creator
    return marks


def _annotations(claim: SandboxClaim, template: SandboxTemplate) -> dict[str, str]:
    notes = {labels.TEMPLATE_REF: template.metadata.name, labels.POD_NAME: claim.metadata.name}
    if trace := claim.metadata.annotations.get(labels.TRACE_CONTEXT):
        notes[labels.TRACE_CONTEXT] = trace
    return notes


PodSpec = dict[str, Any]
Container = dict[str, Any]
_LISTS = ("initContainers", "containers")


def with_environment(spec: PodSpec, wanted: Sequence[EnvVar], policy: str, template: str) -> PodSpec:
    """The pod spec of that template with the variables in place. What is not touched is shared with the old one, never copied."""
    if not wanted:
        return spec
    if policy not in (InjectionPolicy.ALLOWED, InjectionPolicy.OVERRIDES):
        raise _env_refusal(
            f'spec.env["{wanted[0].name}"]: SandboxTemplate {template} lets no claim set variables; '
            "leave them out or set its spec.envVarsInjectionPolicy to Allowed"
        )
    targets = _targets(spec, wanted, template)
    changed = dict(spec)
    for field in _LISTS:
        containers: list[Container] = spec.get(field) or []
        if any(container["name"] in targets for container in containers):
            changed[field] = [_inject(one, targets.get(one["name"], ()), policy, template) for one in containers]
    return changed


def _targets(spec: PodSpec, wanted: Sequence[EnvVar], template: str) -> dict[str, list[EnvVar]]:
    """The variables of each container: those with a containerName first, then those that go to the first container by default."""
    names = [container["name"] for field in _LISTS for container in spec.get(field) or ()]
    first = next((container["name"] for container in spec.get("containers") or ()), "")
    targets: dict[str, list[EnvVar]] = {}
    for variable in sorted(wanted, key=lambda one: not one.container_name):
        target = variable.container_name or first
        if target not in names:
            raise _env_refusal(
                f'spec.env["{variable.name}"]: SandboxTemplate {template} has no container "{target}"; '
                f"it has {', '.join(names)}"
            )
        targets.setdefault(target, []).append(variable)
    return targets


def _inject(container: Container, variables: Sequence[EnvVar], policy: str, template: str) -> Container:
    if not variables:
        return container
    name = container["name"]
    if policy == InjectionPolicy.ALLOWED and container.get("envFrom"):
        raise _env_refusal(
            f'spec.env["{variables[0].name}"]: container "{name}" has envFrom, which may hold a variable of this name; '
            f"choose another container, or set spec.envVarsInjectionPolicy of SandboxTemplate {template} to Overrides"
        )
    env: list[dict[str, Any]] = list(container.get("env") or ())
    at = {entry["name"]: index for index, entry in enumerate(env)}
    for variable in variables:
        entry = {"name": variable.name, "value": variable.value}
        if variable.name not in at:
            at[variable.name] = len(env)
            env.append(entry)
        elif policy == InjectionPolicy.OVERRIDES:
            env[at[variable.name]] = entry
        else:
            raise _env_refusal(
                f'spec.env["{variable.name}"]: container "{name}" has this variable already; '
                f"choose another name or set spec.envVarsInjectionPolicy of SandboxTemplate {template} to Overrides"
            )
    return {**container, "env": env}


def _env_refusal(message: str) -> Terminal:
    return Terminal(Reason.ENV_VARS_INJECTION_REJECTED, message)


Volumes = tuple[VolumeClaimTemplate, ...]


def with_volumes(ours: Volumes | None, wanted: Volumes, policy: str, template: str) -> Volumes | None:
    """The template's volumes with the claim's: appended, or in place of those of the same name."""
    places = _places(ours or (), f"SandboxTemplate {template}: spec.volumeClaimTemplates")
    _places(wanted, "spec.volumeClaimTemplates")
    if not wanted:
        return ours
    if policy not in (InjectionPolicy.ALLOWED, InjectionPolicy.OVERRIDES):
        raise _volume_refusal(
            f"spec.volumeClaimTemplates: SandboxTemplate {template} lets no claim add storage; "
            "leave it out or set its spec.volumeClaimTemplatesPolicy to Allowed"
        )
    merged = list(ours or ())
    for volume in wanted:
        name = volume.metadata.name
        if name not in places:
            merged.append(volume)
        elif policy == InjectionPolicy.OVERRIDES:
            merged[places[name]] = volume
        else:
            raise _volume_refusal(
                f'spec.volumeClaimTemplates: SandboxTemplate {template} has "{name}" already; '
                "choose another name or set its spec.volumeClaimTemplatesPolicy to Overrides"
            )
    return tuple(merged)


def _places(volumes: Sequence[VolumeClaimTemplate], where: str) -> dict[str, int]:
    """Each name and its index. Refuses names that are missing or repeated."""
    places: dict[str, int] = {}
    for index, volume in enumerate(volumes):
        name = volume.metadata.name
        if not name:
            raise _volume_refusal(f"{where}[{index}].metadata.name is missing: every volume needs a name")
        if name in places:
            raise _volume_refusal(f'{where}[{index}].metadata.name: "{name}" is used twice')
        places[name] = index
    return places


def _volume_refusal(message: str) -> Terminal:
    return Terminal(Reason.VOLUME_CLAIM_TEMPLATES_ERROR, message)
