"""The parts of Kubernetes' own kinds that we read. Unknown fields are dropped, so these are never written back whole."""

from __future__ import annotations

from datetime import datetime
from typing import Any, ClassVar

import msgspec

from sandpool.model.metadata import Metadata, Model


class ObjectReference(Model, frozen=True):
    api_version: str = ""
    kind: str = ""
    namespace: str = ""
    name: str = ""
    uid: str = ""
    resource_version: str = ""
    field_path: str = ""


class NamespaceStatus(Model, frozen=True):
    phase: str = ""


class NamespaceSpec(Model, frozen=True):
    finalizers: tuple[str, ...] = ()


class Namespace(Model, frozen=True):
    api_version: ClassVar[str] = "v1"
    kind: ClassVar[str] = "Namespace"

    metadata: Metadata = Metadata()
    spec: NamespaceSpec = NamespaceSpec()
    status: NamespaceStatus = NamespaceStatus()


class ServicePort(Model, frozen=True):
    port: int
    name: str = ""
    protocol: str = "TCP"
    target_port: int | str | None = None


class ServiceSpec(Model, frozen=True):
    cluster_ip: str = msgspec.field(default="", name="clusterIP")
    type: str = ""
    selector: dict[str, str] = msgspec.field(default_factory=dict)
    ports: tuple[ServicePort, ...] = ()

    @property
    def headless(self) -> bool:
        return self.cluster_ip == "None"


class Service(Model, frozen=True):
    api_version: ClassVar[str] = "v1"
    kind: ClassVar[str] = "Service"

    metadata: Metadata = Metadata()
    spec: ServiceSpec = ServiceSpec()


class PersistentVolumeClaimStatus(Model, frozen=True):
    phase: str = ""
    capacity: dict[str, str | int | float] = msgspec.field(default_factory=dict)


class PersistentVolumeClaim(Model, frozen=True):
    api_version: ClassVar[str] = "v1"
    kind: ClassVar[str] = "PersistentVolumeClaim"

    metadata: Metadata = Metadata()
    spec: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    status: PersistentVolumeClaimStatus = PersistentVolumeClaimStatus()


class ConfigMap(Model, frozen=True):
    api_version: ClassVar[str] = "v1"
    kind: ClassVar[str] = "ConfigMap"

    metadata: Metadata = Metadata()
    data: dict[str, str] = msgspec.field(default_factory=dict)
    binary_data: dict[str, str] = msgspec.field(default_factory=dict)
    immutable: bool | None = None


class Secret(Model, frozen=True):
    """`data` is base64, as on the wire."""

    api_version: ClassVar[str] = "v1"
    kind: ClassVar[str] = "Secret"

    metadata: Metadata = Metadata()
    type: str = ""
    data: dict[str, str] = msgspec.field(default_factory=dict)
    immutable: bool | None = None


class ServiceAccount(Model, frozen=True):
    api_version: ClassVar[str] = "v1"
    kind: ClassVar[str] = "ServiceAccount"

    metadata: Metadata = Metadata()
    automount_service_account_token: bool | None = None


class EventSource(Model, frozen=True):
    component: str = ""
    host: str = ""


class EventSeries(Model, frozen=True):
    count: int = 0
    last_observed_time: datetime | None = None


class Event(Model, frozen=True):
    api_version: ClassVar[str] = "v1"
    kind: ClassVar[str] = "Event"

    metadata: Metadata = Metadata()
    involved_object: ObjectReference = ObjectReference()
    reason: str = ""
    message: str = ""
    type: str = ""
    count: int = 0
    first_timestamp: datetime | None = None
    last_timestamp: datetime | None = None
    event_time: datetime | None = None
    source: EventSource = EventSource()
    series: EventSeries | None = None
    action: str = ""
    reporting_component: str = ""
    reporting_instance: str = ""


class ScopeRequirement(Model, frozen=True):
    scope_name: str = ""
    operator: str = ""
    values: tuple[str, ...] = ()


class ScopeSelector(Model, frozen=True):
    match_expressions: tuple[ScopeRequirement, ...] = ()


class ResourceQuotaSpec(Model, frozen=True):
    hard: dict[str, str | int | float] = msgspec.field(default_factory=dict)
    scopes: tuple[str, ...] = ()
    scope_selector: ScopeSelector = ScopeSelector()


class ResourceQuotaStatus(Model, frozen=True):
    hard: dict[str, str | int | float] = msgspec.field(default_factory=dict)
    used: dict[str, str | int | float] = msgspec.field(default_factory=dict)


class ResourceQuota(Model, frozen=True):
    api_version: ClassVar[str] = "v1"
    kind: ClassVar[str] = "ResourceQuota"

    metadata: Metadata = Metadata()
    spec: ResourceQuotaSpec = ResourceQuotaSpec()
    status: ResourceQuotaStatus = ResourceQuotaStatus()


class LeaseSpec(Model, frozen=True):
    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    acquire_time: datetime | None = None
    renew_time: datetime | None = None
    lease_transitions: int | None = None


class Lease(Model, frozen=True):
    api_version: ClassVar[str] = "coordination.k8s.io/v1"
    kind: ClassVar[str] = "Lease"

    metadata: Metadata = Metadata()
    spec: LeaseSpec = LeaseSpec()


POLICY_ENTRIES = 1024
"""Maximum number of egress rules, peers, exceptions and ports in one NetworkPolicy."""


class NetworkPolicy(Model, frozen=True):
    api_version: ClassVar[str] = "networking.k8s.io/v1"
    kind: ClassVar[str] = "NetworkPolicy"

    metadata: Metadata = Metadata()
    spec: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


class RuntimeClass(Model, frozen=True):
    api_version: ClassVar[str] = "node.k8s.io/v1"
    kind: ClassVar[str] = "RuntimeClass"

    metadata: Metadata = Metadata()
    handler: str = ""
    overhead: dict[str, Any] | None = None
