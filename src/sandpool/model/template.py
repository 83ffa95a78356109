"""SandboxTemplate: the blueprint of many sandboxes, and what their users may change about it."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, ClassVar

from sandpool.model.fields import EgressRule, IngressRule, doc, one_of
from sandpool.model.metadata import Metadata, Model
from sandpool.model.sandbox import PodTemplate, VolumeClaimTemplate

GROUP = "extensions.agents.x-k8s.io"
VERSION = "v1beta1"


class NetworkPolicyManagement(StrEnum):
    MANAGED = "Managed"
    UNMANAGED = "Unmanaged"


class InjectionPolicy(StrEnum):
    """What a claim may add to the blueprint. An empty or unknown value means Disallowed."""

    ALLOWED = "Allowed"
    OVERRIDES = "Overrides"
    DISALLOWED = "Disallowed"


class NetworkRules(Model, frozen=True):
    ingress: Annotated[tuple[IngressRule, ...], doc("What may reach the pods. Empty: nothing.")] = ()
    egress: Annotated[tuple[EgressRule, ...], doc("What the pods may reach. Empty: nothing.")] = ()


class SandboxTemplateSpec(Model, frozen=True):
    pod_template: Annotated[
        PodTemplate,
        doc(
            "The pod that backs each sandbox. Where it does not say otherwise, sandboxes get no service account token, the "
            "runtime's seccomp profile and no way to gain privileges."
        ),
    ]
    volume_claim_templates: Annotated[
        tuple[VolumeClaimTemplate, ...] | None,
        doc("Storage of each sandbox, one claim for each template.", x_kubernetes_list_type="atomic"),
    ] = None
    service: Annotated[
        bool | None, doc("true: each sandbox has a headless Service; false: none; unset: keep one that is there.")
    ] = None
    network_policy: Annotated[
        NetworkRules | None,
        doc("Rules of the one NetworkPolicy that covers all pods of this template. Unset: the built-in strict one."),
    ] = None
    network_policy_management: Annotated[
        str,
        doc(
            "Managed: the NetworkPolicy is kept for you; Unmanaged: it is yours.",
            enum=one_of(NetworkPolicyManagement),
            default="Managed",
        ),
    ] = NetworkPolicyManagement.MANAGED.value
    env_vars_injection_policy: Annotated[
        str,
        doc(
            "Whether a claim may add variables (Allowed), also replace ours (Overrides), or neither (Disallowed).",
            enum=one_of(InjectionPolicy),
            default="Disallowed",
        ),
    ] = InjectionPolicy.DISALLOWED.value
    volume_claim_templates_policy: Annotated[
        str,
        doc(
            "Whether a claim may add storage (Allowed), also replace ours (Overrides), or neither (Disallowed).",
            enum=one_of(InjectionPolicy),
            default="Disallowed",
        ),
    ] = InjectionPolicy.DISALLOWED.value

    @property
    def managed_network(self) -> bool:
        return self.network_policy_management != NetworkPolicyManagement.UNMANAGED


class SandboxTemplate(Model, frozen=True):
    """A blueprint for sandboxes. Pools keep copies of it warm; claims hand them out."""

    api_version: ClassVar[str] = f"{GROUP}/{VERSION}"
    kind: ClassVar[str] = "SandboxTemplate"

    spec: Annotated[SandboxTemplateSpec, doc("What each sandbox is made from.")]
    metadata: Metadata = Metadata()
