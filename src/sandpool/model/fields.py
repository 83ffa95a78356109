"""How a field of a wire type explains itself: its description, and what its schema says beyond the Python type.

Rules go into the schema only, never into msgspec constraints: a reader must be able to decode whatever a server holds, also
an enum value or a number that this version does not know.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any

import msgspec

DEFINITION = "definition"
"""Key under which a raw field names the Kubernetes schema that its JSON follows."""


def doc(description: str, **schema: Any) -> msgspec.Meta:
    """Describes a field. Keywords become schema keywords; `x_kubernetes_list_type` is written with dashes."""
    extra = {name.replace("_", "-") if name.startswith("x_") else name: value for name, value in schema.items()}
    return msgspec.Meta(description=description, extra_json_schema=extra or None)


def one_of(values: type[StrEnum]) -> list[str]:
    return [str(value) for value in values]


def follows(definition: str) -> msgspec.Meta:
    """Marks a field that stays undecoded JSON: which Kubernetes definition it follows."""
    return msgspec.Meta(extra={DEFINITION: definition})


PodSpec = Annotated[msgspec.Raw, follows("io.k8s.api.core.v1.PodSpec")]
PersistentVolumeClaimSpec = Annotated[msgspec.Raw, follows("io.k8s.api.core.v1.PersistentVolumeClaimSpec")]
IngressRule = Annotated[msgspec.Raw, follows("io.k8s.api.networking.v1.NetworkPolicyIngressRule")]
EgressRule = Annotated[msgspec.Raw, follows("io.k8s.api.networking.v1.NetworkPolicyEgressRule")]
