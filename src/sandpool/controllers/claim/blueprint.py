"""The sandbox that a claim starts when it takes no warm one. Pure: a claim and a template in, an object out.

Raises Terminal, with the reason of the claim's condition, if the template or the rules do not allow what the claim asks for.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from sandpool.controllers.claim import pod_metadata
from sandpool.controllers.claim.environment import with_environment
from sandpool.controllers.claim.volumes import with_volumes
from sandpool.model import labels
from sandpool.model.blueprint import secure_pod_spec
from sandpool.model.claim import SandboxClaim
from sandpool.model.container_defaults import NONE, ContainerDefaults
from sandpool.model.labels import LaunchType
from sandpool.model.metadata import Metadata, OwnerReference
from sandpool.model.names import name_hash
from sandpool.model.sandbox import PodMetadata, PodTemplate, Sandbox, SandboxSpec
from sandpool.model.template import SandboxTemplate


def cold_sandbox(
    claim: SandboxClaim,
    template: SandboxTemplate,
    domains: Sequence[str] = pod_metadata.USER_DOMAINS,
    defaults: ContainerDefaults = NONE,
) -> Sandbox:
    """Named like the claim, controlled by it, and complete: the pod's name is on it before the pod is."""
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
