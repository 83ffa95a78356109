"""Types of a pod's spec for environment variables and volumes that refer to other objects."""

from __future__ import annotations

from typing import Any

import msgspec

from sandpool.model.metadata import Model


class FieldRef(Model, frozen=True):
    field_path: str = ""


class ResourceFieldRef(Model, frozen=True):
    container_name: str = ""
    resource: str = ""
    divisor: str | int | float = "0"


class KeyRef(Model, frozen=True):
    name: str = ""
    key: str = ""
    optional: bool = False


class ValueFrom(Model, frozen=True):
    field_ref: FieldRef | None = None
    resource_field_ref: ResourceFieldRef | None = None
    config_map_key_ref: KeyRef | None = None
    secret_key_ref: KeyRef | None = None


class ObjectRef(Model, frozen=True):
    name: str = ""
    optional: bool = False


class EnvFrom(Model, frozen=True):
    prefix: str = ""
    config_map_ref: ObjectRef | None = None
    secret_ref: ObjectRef | None = None


class KeyToPath(Model, frozen=True):
    key: str = ""
    path: str = ""
    mode: int | None = None


class EmptyDirSource(Model, frozen=True):
    medium: str = ""
    size_limit: str | int | float | None = None


class ConfigMapSource(Model, frozen=True):
    name: str = ""
    items: tuple[KeyToPath, ...] = ()
    default_mode: int | None = None
    optional: bool = False


class SecretSource(Model, frozen=True):
    secret_name: str = ""  # in a volume
    name: str = ""  # in a projected source
    items: tuple[KeyToPath, ...] = ()
    default_mode: int | None = None
    optional: bool = False


class DownwardFile(Model, frozen=True):
    path: str = ""
    field_ref: FieldRef | None = None
    resource_field_ref: ResourceFieldRef | None = None
    mode: int | None = None


class DownwardSource(Model, frozen=True):
    items: tuple[DownwardFile, ...] = ()
    default_mode: int | None = None


class Projection(Model, frozen=True):
    config_map: ConfigMapSource | None = None
    secret: SecretSource | None = None
    downward_api: DownwardSource | None = msgspec.field(name="downwardAPI", default=None)
    service_account_token: dict[str, Any] | None = None
    cluster_trust_bundle: dict[str, Any] | None = None
    pod_certificate: dict[str, Any] | None = None


class ProjectedSource(Model, frozen=True):
    sources: tuple[Projection, ...] = ()
    default_mode: int | None = None


class ClaimSource(Model, frozen=True):
    claim_name: str = ""
    read_only: bool = False


class HostPathSource(Model, frozen=True):
    path: str = ""
    type: str = ""


class PodVolume(Model, frozen=True):
    """A volume has one source; if all fields are unset, it is of an unsupported kind."""

    name: str = ""
    empty_dir: EmptyDirSource | None = None
    config_map: ConfigMapSource | None = None
    secret: SecretSource | None = None
    downward_api: DownwardSource | None = msgspec.field(name="downwardAPI", default=None)
    projected: ProjectedSource | None = None
    persistent_volume_claim: ClaimSource | None = None
    host_path: HostPathSource | None = None

    @property
    def shows(self) -> bool:
        """Whether its files come from the API."""
        return any(one is not None for one in (self.config_map, self.secret, self.downward_api, self.projected))
