"""Sandbox: one isolated computer, backed by one pod. Also the blueprint that it shares with SandboxTemplate."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Annotated, ClassVar

import msgspec

from sandpool.model.conditions import Condition
from sandpool.model.fields import PersistentVolumeClaimSpec, PodSpec, doc, one_of
from sandpool.model.metadata import Metadata, Model
from sandpool.model.names import LABEL, MAX_LABEL

GROUP = "agents.x-k8s.io"
VERSION = "v1beta1"
IMMUTABLE_CLAIMS = (
    "has(self.volumeClaimTemplates) ? has(oldSelf.volumeClaimTemplates) && "
    "self.volumeClaimTemplates == oldSelf.volumeClaimTemplates : !has(oldSelf.volumeClaimTemplates)"
)
IMMUTABLE_CLAIMS_MESSAGE = "volumeClaimTemplates is immutable"


class ShutdownPolicy(StrEnum):
    DELETE = "Delete"
    RETAIN = "Retain"


class OperatingMode(StrEnum):
    RUNNING = "Running"
    SUSPENDED = "Suspended"


class PodMetadata(Model, frozen=True):
    labels: Annotated[dict[str, str], doc("Labels that the pod carries.")] = msgspec.field(default_factory=dict)
    annotations: Annotated[dict[str, str], doc("Annotations that the pod carries.")] = msgspec.field(
        default_factory=dict
    )


class PodTemplate(Model, frozen=True):
    spec: Annotated[PodSpec, doc("The pod to run. A change reaches the next pod, never a running one.")]
    metadata: Annotated[
        PodMetadata | None, doc("Labels and annotations of the pod. A change reaches a running pod.")
    ] = None


class EmbeddedMetadata(Model, frozen=True):
    # Not required, because an absent name has always been accepted here and is reported in the claim's conditions.
    # A name that no volume can have is refused at once.
    name: Annotated[
        str,
        doc(
            "Name of the template and of its volume in the pod; the claim is called <name>-<sandbox name>.",
            minLength=1,
            maxLength=MAX_LABEL,
            pattern=f"^{LABEL}$",
        ),
    ] = ""
    labels: Annotated[dict[str, str], doc("Labels that the claim carries.")] = msgspec.field(default_factory=dict)
    annotations: Annotated[dict[str, str], doc("Annotations that the claim carries.")] = msgspec.field(
        default_factory=dict
    )


class VolumeClaimTemplate(Model, frozen=True):
    spec: Annotated[PersistentVolumeClaimSpec, doc("The storage that is asked for.")]
    metadata: Annotated[EmbeddedMetadata, doc("Name, labels and annotations of the claim.")] = EmbeddedMetadata()


class SandboxSpec(Model, frozen=True):
    pod_template: Annotated[PodTemplate, doc("The one pod that backs this sandbox.")]
    volume_claim_templates: Annotated[
        tuple[VolumeClaimTemplate, ...] | None,
        doc(
            "Storage that outlives the pod, one claim for each template. Cannot change after creation.",
            x_kubernetes_list_type="atomic",
        ),
    ] = None
    service: Annotated[
        bool | None,
        doc("true: keep a headless Service of the sandbox's name; false: remove it; unset: keep one that is there."),
    ] = None
    shutdown_time: Annotated[datetime | None, doc("When the sandbox expires. Unset: never.")] = None
    shutdown_policy: Annotated[
        str,
        doc(
            "What becomes of the object when it expires; its pod and Service go in any case.",
            enum=one_of(ShutdownPolicy),
            default="Retain",
        ),
    ] = ShutdownPolicy.RETAIN.value
    operating_mode: Annotated[
        str,
        doc(
            "Suspended stops the pod and keeps persistent volumes and the Service, no other files; Running brings it back.",
            enum=one_of(OperatingMode),
            default="Running",
        ),
    ] = OperatingMode.RUNNING.value

    @property
    def suspended(self) -> bool:
        """Whether the mode is Suspended. All other values, including unknown ones, mean running."""
        return self.operating_mode == OperatingMode.SUSPENDED


class SandboxStatus(Model, frozen=True):
    conditions: Annotated[
        tuple[Condition, ...],
        doc(
            "What is true of the sandbox: Ready, Suspended, PodScheduled, Finished, Healthy, PodUpToDate.",
            x_kubernetes_list_type="map",
            x_kubernetes_list_map_keys=["type"],
        ),
    ] = ()
    service: Annotated[str, doc("Name of the Service in use.")] = ""
    service_fqdn: Annotated[str, doc("The Service's name in DNS.")] = msgspec.field(default="", name="serviceFQDN")
    selector: Annotated[str, doc("Label selector that finds the pod.")] = ""
    pod_ips: Annotated[tuple[str, ...], doc("Addresses of the pod, the primary one first.")] = msgspec.field(
        default=(), name="podIPs"
    )
    node_name: Annotated[str, doc("The node that the pod runs on.")] = ""


class Sandbox(Model, frozen=True):
    """A single isolated computer: one pod with a stable name, storage that outlives it, and a life of its own."""

    api_version: ClassVar[str] = f"{GROUP}/{VERSION}"
    kind: ClassVar[str] = "Sandbox"

    spec: Annotated[
        SandboxSpec,
        doc(
            "What is wanted.",
            x_kubernetes_validations=[{"rule": IMMUTABLE_CLAIMS, "message": IMMUTABLE_CLAIMS_MESSAGE}],
        ),
    ]
    metadata: Metadata = Metadata()
    status: Annotated[SandboxStatus, doc("What is.")] = SandboxStatus()
