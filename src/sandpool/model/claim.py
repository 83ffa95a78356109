"""SandboxClaim: a request for a sandbox from a pool, for a limited time."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Annotated, ClassVar

import msgspec

from sandpool.model.conditions import Condition
from sandpool.model.fields import doc, one_of
from sandpool.model.metadata import Key, Metadata, Model
from sandpool.model.sandbox import PodMetadata, VolumeClaimTemplate
from sandpool.model.template import GROUP, VERSION


class ClaimShutdownPolicy(StrEnum):
    DELETE = "Delete"
    DELETE_FOREGROUND = "DeleteForeground"
    RETAIN = "Retain"


class PoolRef(Model, frozen=True):
    name: Annotated[str, doc("Name of a SandboxWarmPool in the same namespace.")]


class Lifecycle(Model, frozen=True):
    shutdown_time: Annotated[datetime | None, doc("When the claim expires. Unset: not by the clock.")] = None
    ttl_seconds_after_finished: Annotated[
        int | None, doc("How long the claim outlives the end of its sandbox's work.", format="int32", minimum=0)
    ] = None
    shutdown_policy: Annotated[
        str,
        doc(
            "At expiry: Retain deletes the sandbox and keeps the claim, Delete deletes the claim, DeleteForeground deletes the "
            "claim and keeps it visible until its sandbox is gone.",
            enum=one_of(ClaimShutdownPolicy),
            default="Retain",
        ),
    ] = ClaimShutdownPolicy.RETAIN.value


class EnvVar(Model, frozen=True):
    name: Annotated[str, doc("Name of the variable.", minLength=1)]
    value: Annotated[str, doc("Its value, taken literally.")]
    container_name: Annotated[str, doc("The container that gets it. Unset: the first one.")] = ""


class SandboxClaimSpec(Model, frozen=True):
    warm_pool_ref: Annotated[PoolRef, doc("The pool to take a sandbox from.")]
    lifecycle: Annotated[Lifecycle | None, doc("When the claim ends. Unset: never by itself.")] = None
    additional_pod_metadata: Annotated[
        PodMetadata | None, doc("Labels and annotations that the pod gets besides those of the template.")
    ] = None
    env: Annotated[
        tuple[EnvVar, ...],
        doc(
            "Variables for the sandbox. With any, a new sandbox is started instead of taking a warm one.",
            x_kubernetes_list_type="atomic",
        ),
    ] = ()
    volume_claim_templates: Annotated[
        tuple[VolumeClaimTemplate, ...],
        doc(
            "Storage for the sandbox. With any, a new sandbox is started instead of taking a warm one.",
            x_kubernetes_list_type="atomic",
        ),
    ] = ()

    @property
    def customised(self) -> bool:
        """Whether no warm sandbox can serve this claim, because it customises fields that are fixed once a pod exists."""
        return bool(self.env or self.volume_claim_templates)


class BoundSandbox(Model, frozen=True):
    name: Annotated[str, doc("Name of the Sandbox that belongs to this claim.")] = ""
    pod_ips: Annotated[tuple[str, ...], doc("Addresses of its pod.")] = msgspec.field(default=(), name="podIPs")
    service_fqdn: Annotated[str, doc("Name in DNS of its Service, if it has one.")] = msgspec.field(
        default="", name="serviceFQDN"
    )


class SandboxClaimStatus(Model, frozen=True):
    conditions: Annotated[
        tuple[Condition, ...],
        doc(
            "What is true of the claim: Ready, Finished, Healthy.",
            x_kubernetes_list_type="map",
            x_kubernetes_list_map_keys=["type"],
        ),
    ] = ()
    sandbox: Annotated[BoundSandbox | None, doc("The sandbox that was handed out.")] = None


class SandboxClaim(Model, frozen=True):
    """A request for one sandbox of a pool: bound at once when a warm one is ready."""

    api_version: ClassVar[str] = f"{GROUP}/{VERSION}"
    kind: ClassVar[str] = "SandboxClaim"

    spec: Annotated[SandboxClaimSpec, doc("What is asked for.")]
    metadata: Metadata = Metadata()
    status: Annotated[SandboxClaimStatus, doc("What was handed out.")] = SandboxClaimStatus()

    @property
    def pool_key(self) -> Key:
        """The key of the pool that the claim refers to, whether it exists or not."""
        return Key(self.metadata.namespace, self.spec.warm_pool_ref.name)
