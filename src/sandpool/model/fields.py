"""Annotations for the fields of wire types: a description, and schema keywords beyond the Python type."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any

import msgspec

DEFINITION = "definition"
"""The metadata key under which a raw field names the Kubernetes definition of its JSON."""


def doc(description: str, **schema: Any) -> msgspec.Meta:
    """Describes a field. Keyword arguments become schema keywords; those that begin with `x_` are written with dashes."""
    extra = {name.replace("_", "-") if name.startswith("x_") else name: value for name, value in schema.items()}
    return msgspec.Meta(description=description, extra_json_schema=extra or None)


def one_of(values: type[StrEnum]) -> list[str]:
    return [str(value) for value in values]


def follows(definition: str) -> msgspec.Meta:
    """Marks a field that stays undecoded JSON, and names the Kubernetes definition that it follows."""
    return msgspec.Meta(extra={DEFINITION: definition})


PodSpec = Annotated[msgspec.Raw, follows("io.k8s.api.core.v1.PodSpec")]
PersistentVolumeClaimSpec = Annotated[msgspec.Raw, follows("io.k8s.api.core.v1.PersistentVolumeClaimSpec")]
IngressRule = Annotated[msgspec.Raw, follows("io.k8s.api.networking.v1.NetworkPolicyIngressRule")]
EgressRule = Annotated[msgspec.Raw, follows("io.k8s.api.networking.v1.NetworkPolicyEgressRule")]
