"""The sandbox that a pool makes: names and bodies. Pure; randomness is an argument."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from sandpool.model import labels
from sandpool.model.blueprint import pod_template_hash, secure_pod_spec
from sandpool.model.container_defaults import NONE, ContainerDefaults
from sandpool.model.labels import Creator, LaunchType
from sandpool.model.metadata import Metadata, OwnerReference
from sandpool.model.names import MAX_LABEL, name_hash
from sandpool.model.pool import SandboxWarmPool
from sandpool.model.sandbox import PodMetadata, PodTemplate, Sandbox, SandboxSpec
from sandpool.model.template import SandboxTemplate

ALPHABET = "bcdfghjklmnpqrstvwxz2456789"
"""No vowels, so that no words come out; nothing that is easily taken for something else."""
RANDOM = 8
_SUFFIXES = len(ALPHABET) ** RANDOM


def member_name(pool: str, random: Callable[[], float]) -> str:
    """A name that a pod, its host name and a Service can have, too: long names of pools are cut. One draw is enough for it: a
    random number has more digits than there are suffixes."""
    number, suffix = int(random() * _SUFFIXES), ""
    for _ in range(RANDOM):
        number, digit = divmod(number, len(ALPHABET))
        suffix += ALPHABET[digit]
    return f"{pool[: MAX_LABEL - RANDOM - 1].rstrip('-.')}-{suffix}"


def blank_member(
    pool: SandboxWarmPool, template: SandboxTemplate, blueprint: str, defaults: ContainerDefaults = NONE
) -> Sandbox:
    """A member without a name: made once for many."""
    source = template.spec
    marks = {
        labels.WARM_POOL: name_hash(pool.metadata.name),
        labels.TEMPLATE_REF_HASH: name_hash(template.metadata.name),
        labels.TEMPLATE_HASH: blueprint,
        labels.POD_TEMPLATE_HASH: pod_template_hash(source.pod_template),
    }
    ours = source.pod_template.metadata or PodMetadata()
    return Sandbox(
        metadata=Metadata(
            namespace=pool.metadata.namespace,
            labels={**marks, labels.LAUNCH_TYPE: LaunchType.WARM.value, labels.CREATED_BY: Creator.CONTROLLER.value},
            annotations={labels.TEMPLATE_REF: template.metadata.name},
            owner_references=(owner_reference(pool),),
        ),
        spec=SandboxSpec(
            pod_template=PodTemplate(
                spec=msgspec.Raw(msgspec.json.encode(secure_pod_spec(source, defaults))),
                metadata=PodMetadata(labels={**ours.labels, **marks}, annotations=ours.annotations),
            ),
            volume_claim_templates=source.volume_claim_templates,
            service=source.service,
        ),
    )


def named(blank: Sandbox, name: str) -> Sandbox:
    """The pod's name is there from the beginning, so that nobody has to add it later."""
    meta = blank.metadata
    annotations = {**meta.annotations, labels.POD_NAME: name}
    return msgspec.structs.replace(blank, metadata=msgspec.structs.replace(meta, name=name, annotations=annotations))


def owner_reference(pool: SandboxWarmPool) -> OwnerReference:
    return OwnerReference(
        api_version=SandboxWarmPool.api_version,
        kind=SandboxWarmPool.kind,
        name=pool.metadata.name,
        uid=pool.metadata.uid,
        controller=True,
        block_owner_deletion=True,
    )
