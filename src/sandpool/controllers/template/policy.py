"""The NetworkPolicy of a template: what it contains, when two are equal, and which policies are ours. Pure.

A policy of ours has no owner. If the template owned it, deleting the template would remove the isolation of sandboxes that still
run; a finalizer would make the deletion hang instead. So it carries two marks (the hash as a label, the template's name as an
annotation), and is deleted when the template is gone and nothing that the policy selects is left. A policy that the
template controls, as other implementations make it, counts as ours and loses its owner. All others are foreign.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec

from sandpool.model import labels
from sandpool.model.core import NetworkPolicy
from sandpool.model.documents import Json, same
from sandpool.model.metadata import Metadata
from sandpool.model.names import MAX_SUBDOMAIN, name_hash
from sandpool.model.template import GROUP, SandboxTemplate, SandboxTemplateSpec

SUFFIX = "-network-policy"
PRIVATE_IPV4 = ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "169.254.0.0/16")
PRIVATE_IPV6 = ("fc00::/7", "fe80::/10")


@dataclass(frozen=True, slots=True)
class Options:
    """Where the router runs: the only place that the built-in policy lets in."""

    router_namespace: str = "agent-sandbox-system"
    router_app: str = "sandbox-router"


def policy_name(template: str) -> str:
    name = template + SUFFIX
    if len(name) <= MAX_SUBDOMAIN:
        return name
    tail = f"-{name_hash(template)}{SUFFIX}"
    return template[: MAX_SUBDOMAIN - len(tail)].rstrip("-.") + tail


def policy_body(template: SandboxTemplate, options: Options) -> dict[str, Any]:
    name = template.metadata.name
    return {
        "apiVersion": NetworkPolicy.api_version,
        "kind": NetworkPolicy.kind,
        "metadata": {"name": policy_name(name), "labels": _label(name), "annotations": {labels.TEMPLATE_REF: name}},
        "spec": policy_spec(name, template.spec, options),
    }


def policy_spec(name: str, template: SandboxTemplateSpec, options: Options) -> dict[str, Any]:
    """The template's own rules as they are, or the strict ones: in from the router, out to the public internet."""
    rules = template.network_policy
    if rules is None:
        ingress, egress = [_from_router(options)], [_to_the_internet()]
    else:
        ingress, egress = ([msgspec.json.decode(rule) for rule in side] for side in (rules.ingress, rules.egress))
    return {
        "podSelector": {"matchLabels": _label(name)},
        "policyTypes": ["Ingress", "Egress"],
        "ingress": ingress,
        "egress": egress,
    }


def says(policy: NetworkPolicy, spec: dict[str, Any]) -> bool:
    """Whether the policy means this already; what a server fills in makes no difference."""
    if isinstance(policy.spec, msgspec.UnsetType):
        return False
    return same(_plain(msgspec.json.decode(policy.spec)), _plain(spec))


def marked(meta: Metadata, template: str) -> bool:
    return (
        meta.controller is None
        and meta.annotations.get(labels.TEMPLATE_REF) == template
        and meta.labels.get(labels.TEMPLATE_REF_HASH) == name_hash(template)
    )


def owned(meta: Metadata, template: str) -> bool:
    """Controlled by the template, of whichever version or incarnation."""
    owner = meta.controller
    return owner is not None and (owner.group, owner.kind, owner.name) == (GROUP, SandboxTemplate.kind, template)


def _label(template: str) -> dict[str, str]:
    return {labels.TEMPLATE_REF_HASH: name_hash(template)}


def _from_router(options: Options) -> dict[str, Any]:
    namespace = {"matchLabels": {"kubernetes.io/metadata.name": options.router_namespace}}
    return {"from": [{"podSelector": {"matchLabels": {"app": options.router_app}}, "namespaceSelector": namespace}]}


def _to_the_internet() -> dict[str, Any]:
    """Not to the cluster, not to the machines around it, and not to a cloud's metadata service."""
    return {
        "to": [
            {"ipBlock": {"cidr": "0.0.0.0/0", "except": list(PRIVATE_IPV4)}},
            {"ipBlock": {"cidr": "::/0", "except": list(PRIVATE_IPV6)}},
        ]
    }


def _plain(value: Json) -> Json:
    """Empty lists mean what their absence means, in every place of a policy; so does TCP."""
    if type(value) is list:
        return [_plain(item) for item in value]
    if type(value) is not dict:
        return value
    plain = {}
    for key, child in value.items():
        if child is None or child == [] or (key == "matchLabels" and child == {}):
            continue
        if key == "ports" and type(child) is list:
            child = [{**port, "protocol": port.get("protocol") or "TCP"} for port in child]
        plain[key] = _plain(child)
    return plain
