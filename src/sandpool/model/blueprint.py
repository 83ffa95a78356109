"""What a sandbox is made from: secure defaults, the hash that names a blueprint, and whether a sandbox still follows its template.

A hash that differs proves nothing (labels count in it, and other implementations hash other bytes); `follows` decides.
"""

from __future__ import annotations

from functools import lru_cache
from hashlib import blake2b
from typing import Any

import msgspec

from sandpool.model.container_defaults import NONE, ContainerDefaults
from sandpool.model.documents import Json, same
from sandpool.model.hardening import hardened
from sandpool.model.names import name_hash
from sandpool.model.quantities import QuantityError, canonical
from sandpool.model.sandbox import PodTemplate, SandboxSpec, VolumeClaimTemplate
from sandpool.model.template import SandboxTemplateSpec

PUBLIC_RESOLVERS = ("8.8.8.8", "1.1.1.1")
_QUANTITIES = frozenset({"limits", "requests", "overhead", "capacity"})
_MAPS = _QUANTITIES | {"nodeSelector", "labels", "annotations", "matchLabels"}


def secure_pod_spec(template: SandboxTemplateSpec, defaults: ContainerDefaults = NONE) -> dict[str, Any]:
    """The pod spec that sandboxes of a template get: that of the contract, hardened."""
    return hardened(_contract_pod_spec(template), defaults)


def _contract_pod_spec(template: SandboxTemplateSpec) -> dict[str, Any]:
    """As any implementation of the contract makes it: no service account token and, behind the built-in network policy,
    public resolvers, because it does not let pods reach the cluster's own."""
    return _with_contract(msgspec.json.decode(template.pod_template.spec), _built_in_walls(template))


def _built_in_walls(template: SandboxTemplateSpec) -> bool:
    return template.managed_network and template.network_policy is None


def _with_contract(spec: dict[str, Any], walled: bool) -> dict[str, Any]:
    added: dict[str, Any] = {}
    if spec.get("automountServiceAccountToken") is None:
        added["automountServiceAccountToken"] = False
    if walled and not spec.get("dnsPolicy"):
        added["dnsPolicy"] = "None"
        added["dnsConfig"] = {**(spec.get("dnsConfig") or {}), "nameservers": list(PUBLIC_RESOLVERS)}
    return {**spec, **added}


def blueprint_hash(blueprint: SandboxSpec | SandboxTemplateSpec, defaults: ContainerDefaults = NONE) -> str:
    """Names everything that a sandbox is made from, metadata included; the order of keys does not matter."""
    parts: dict[str, Any] = {
        "podTemplate": blueprint.pod_template,
        "volumeClaimTemplates": blueprint.volume_claim_templates,
        "service": blueprint.service,
    }
    if isinstance(blueprint, SandboxTemplateSpec) and _built_in_walls(blueprint):
        parts["walls"] = True  # they decide which resolvers a pod is given
    if defaults != NONE:
        parts["defaults"] = defaults.texts()
    return _hash(parts)


def pod_template_hash(template: PodTemplate) -> str:
    return _hash(template)


def pod_spec_hash(spec: msgspec.Raw) -> str:
    """Names a pod spec by what it means: how it is written makes no difference."""
    return _pod_spec_hash(bytes(spec))


@lru_cache(maxsize=256)
def _pod_spec_hash(spec: bytes) -> str:
    # Asked about each sandbox again and again; those of one template have the same bytes.
    plain = _plain(msgspec.json.decode(spec))
    return blake2b(msgspec.json.encode(plain, order="sorted"), digest_size=8).hexdigest()


def follows(sandbox: SandboxSpec, template: SandboxTemplateSpec, defaults: ContainerDefaults = NONE) -> bool:
    """Whether the sandbox is what the template would make today. Labels and annotations do not count.

    A sandbox that another implementation made is not hardened, and one that was made without defaults has no limits. They
    follow all the same, else a takeover or an upgrade would replace every warm member; what the template itself says about
    privileges and limits they must have."""
    return (
        sandbox.service == template.service
        and _same_claims(sandbox.volume_claim_templates or (), template.volume_claim_templates or ())
        and _same_pod(
            bytes(sandbox.pod_template.spec), bytes(template.pod_template.spec), _built_in_walls(template), defaults
        )
    )


@lru_cache(maxsize=512)
def _same_pod(spec: bytes, template: bytes, walled: bool, defaults: ContainerDefaults) -> bool:
    # When a template changes, this is asked about each member of its pools at once; those of one make have the same bytes.
    made: Json = msgspec.json.decode(spec)
    contract = _with_contract(msgspec.json.decode(template), walled)
    ours, unlimited = hardened(contract, defaults), hardened(contract)
    forms = [ours] if ours == unlimited else [ours, unlimited]
    forms += [] if unlimited is contract else [contract]
    return any(_same_spec(made, form) for form in forms)


def _same_claims(left: tuple[VolumeClaimTemplate, ...], right: tuple[VolumeClaimTemplate, ...]) -> bool:
    return len(left) == len(right) and all(
        one.metadata.name == other.metadata.name
        and _same_spec(msgspec.json.decode(one.spec), msgspec.json.decode(other.spec))
        for one, other in zip(left, right, strict=True)
    )


def _same_spec(left: Json, right: Json) -> bool:
    return same(left, right) or same(_plain(left), _plain(right))


def _plain(value: Json) -> Json:
    """A spec in the form in which equal meaning is equal JSON: empty lists and maps are absent, quantities canonical."""
    if type(value) is list:
        return [_plain(item) for item in value]
    if type(value) is not dict:
        return value
    plain = {}
    for key, child in value.items():
        if child is None or child == [] or (key in _MAPS and child == {}):
            continue
        quantities = key in _QUANTITIES and type(child) is dict
        plain[key] = {name: _quantity(amount) for name, amount in child.items()} if quantities else _plain(child)
    return plain


def _quantity(amount: Json) -> Json:
    try:
        return canonical(amount)
    except (QuantityError, TypeError):
        return amount


def _hash(value: Any) -> str:
    # Raw parts are written as they came; decoding what was encoded puts their keys in order too.
    document = msgspec.json.decode(msgspec.json.encode(value))
    return name_hash(msgspec.json.encode(document, order="sorted").decode())
