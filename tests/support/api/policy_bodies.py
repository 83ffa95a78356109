"""NetworkPolicies as users write them."""

from __future__ import annotations

import json
from typing import Any

import msgspec

from sandpool.model.core import NetworkPolicy

LABELS = {"app": "box"}


def network_policy(
    egress: list[dict[str, Any]] | None,
    *,
    name: str = "out",
    namespace: str = "team",
    types: list[str] | None = None,
    selector: dict[str, Any] | None = None,
) -> NetworkPolicy:
    spec: dict[str, Any] = {"podSelector": {"matchLabels": LABELS} if selector is None else selector}
    if egress is not None:
        spec["egress"] = egress
    if types is not None:
        spec["policyTypes"] = types
    body = {"metadata": {"name": name, "namespace": namespace}, "spec": spec}
    return msgspec.json.decode(json.dumps(body), type=NetworkPolicy)


def to_block(cidr: str, *but: str, ports: list[dict[str, Any]] | None = None) -> dict[str, Any]:
    rule: dict[str, Any] = {"to": [{"ipBlock": {"cidr": cidr, **({"except": list(but)} if but else {})}}]}
    return rule if ports is None else {**rule, "ports": ports}


EVERYWHERE: list[dict[str, Any]] = [{}]
PUBLIC = [
    to_block("0.0.0.0/0", "10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "169.254.0.0/16"),
    to_block("::/0", "fc00::/7", "fe80::/10"),
]
