"""What a sandbox is made from: secure defaults, the hash that names a blueprint, and whether a sandbox still matches its template.

A different hash does not prove that a sandbox is stale, because it includes labels, and other implementations hash other bytes; `follows`
decides.

`hardened` adds the restrictions that a careful author would have written, where they are absent: the runtime's seccomp profile for the pod,
no privilege escalation, and limits for each container. It never makes a valid spec invalid: `allowPrivilegeEscalation: false` is not
possible for a container that is privileged or has CAP_SYS_ADMIN, and pods for Windows are left as they are.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from hashlib import blake2b
from typing import Any, Generic, TypeVar

import msgspec

from sandpool.model.container_defaults import NONE, ContainerDefaults, limited
from sandpool.model.documents import Json, same
from sandpool.model.names import name_hash
from sandpool.model.quantities import QuantityError, canonical
from sandpool.model.sandbox import PodTemplate, SandboxSpec, VolumeClaimTemplate
from sandpool.model.template import SandboxTemplateSpec

T = TypeVar("T")
SECCOMP = "seccompProfile"
ESCALATION = "allowPrivilegeEscalation"
_CONTAINERS = ("initContainers", "containers")
_ADMINISTRATION = frozenset({"SYS_ADMIN", "ALL"})
PUBLIC_RESOLVERS = ("8.8.8.8", "1.1.1.1")
_SMALL = 16 * 1024
"""Texts of up to this many bytes are cache keys themselves. For larger ones only a digest is kept; otherwise the caches could take gigabytes."""
_QUANTITIES = frozenset({"limits", "requests", "overhead", "capacity"})
_MAPS = _QUANTITIES | {"nodeSelector", "labels", "annotations", "matchLabels"}


def hardened(spec: dict[str, Any], defaults: ContainerDefaults = NONE) -> dict[str, Any]:
    """The spec with restrictions and defaults added. Returns the same object if there is nothing to add; otherwise copies what changes."""
    return spec if _for_windows(spec) else limited(_restricted(spec), defaults)


def _restricted(spec: dict[str, Any]) -> dict[str, Any]:
    added: dict[str, Any] = {}
    if _absent(spec, SECCOMP):
        added["securityContext"] = {**(spec.get("securityContext") or {}), SECCOMP: {"type": "RuntimeDefault"}}
    for field in _CONTAINERS:
        before = spec.get(field)
        if type(before) is list and (after := [_confined(one) for one in before]) != before:
            added[field] = after
    return {**spec, **added} if added else spec


def _confined(container: Json) -> Json:
    if not _absent(container, ESCALATION) or _needs_privileges(container):
        return container
    return {**container, "securityContext": {**(container.get("securityContext") or {}), ESCALATION: False}}


def _absent(part: Json, field: str) -> bool:
    """Whether a field of a pod's or container's securityContext is not set. False if the context is not an object, so that it is left alone."""
    if type(part) is not dict:
        return False
    context = part.get("securityContext")
    return context is None or (type(context) is dict and context.get(field) is None)


def _needs_privileges(container: dict[str, Any]) -> bool:
    """Whether an API server would refuse `allowPrivilegeEscalation: false` for this container, or a runtime would override it."""
    context = container.get("securityContext") or {}
    capabilities = context.get("capabilities") or {}
    asked = {str(name).upper().removeprefix("CAP_") for name in capabilities.get("add") or ()}
    return bool(context.get("privileged")) or not asked.isdisjoint(_ADMINISTRATION)


def _for_windows(spec: dict[str, Any]) -> bool:
    """Whether the pod is for Windows, by its `os` or by its node selector."""
    system, selector = spec.get("os"), spec.get("nodeSelector")
    says = system.get("name") if type(system) is dict else None
    selects = selector.get("kubernetes.io/os") if type(selector) is dict else None
    return "windows" in (says, selects)


class _Digested(Generic[T]):
    """A cache of results by the digests of their input texts; keeps the newest."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._answers: dict[bytes, T] = {}

    def answer(self, texts: tuple[bytes, ...], ask: Callable[..., T]) -> T:
        digest = b"".join([blake2b(text, digest_size=16).digest() for text in texts])
        found = self._answers.get(digest)
        if found is None:
            if len(self._answers) >= self._most:
                del self._answers[next(iter(self._answers))]
            found = self._answers[digest] = ask(*texts)
        return found


_large_hashes = _Digested[str](256)
_large_pairs = _Digested[bool](512)


def secure_pod_spec(template: SandboxTemplateSpec, defaults: ContainerDefaults = NONE) -> dict[str, Any]:
    """The pod spec of sandboxes made from a template: that of the contract, hardened."""
    return hardened(_contract_pod_spec(template), defaults)


def _contract_pod_spec(template: SandboxTemplateSpec) -> dict[str, Any]:
    """The pod spec that every implementation of the contract makes: no service account token and, with the built-in network policy, public
    resolvers, because that policy does not let pods reach the cluster's own."""
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
    """A hash of everything that a sandbox is made from, including metadata. The order of keys does not matter."""
    parts: dict[str, Any] = {
        "podTemplate": blueprint.pod_template,
        "volumeClaimTemplates": blueprint.volume_claim_templates,
        "service": blueprint.service,
    }
    if isinstance(blueprint, SandboxTemplateSpec) and _built_in_walls(blueprint):
        parts["walls"] = True  # it decides which resolvers a pod gets
    if defaults != NONE:
        parts["defaults"] = defaults.texts()
    return _hash(parts)


def pod_template_hash(template: PodTemplate) -> str:
    return _hash(template)


def pod_spec_hash(spec: msgspec.Raw) -> str:
    """A hash of a pod spec's meaning: two spellings of the same spec have the same hash."""
    text = bytes(spec)
    return _pod_spec_hash(text) if len(text) <= _SMALL else _large_hashes.answer((text,), _fresh_pod_spec_hash)


def _fresh_pod_spec_hash(spec: bytes) -> str:
    plain = _plain(msgspec.json.decode(spec))
    return blake2b(msgspec.json.encode(plain, order="sorted"), digest_size=8).hexdigest()


_pod_spec_hash = lru_cache(maxsize=256)(_fresh_pod_spec_hash)
# Called repeatedly for each sandbox; sandboxes of one template have the same bytes.


def follows(sandbox: SandboxSpec, template: SandboxTemplateSpec, defaults: ContainerDefaults = NONE) -> bool:
    """Whether the sandbox is what the template would produce today. Labels and annotations do not count.

    A sandbox made by another implementation is not hardened, and one made without defaults has no limits. Both count as following;
    otherwise a takeover or an upgrade would replace every warm member. But they must have the privileges and limits that the template
    itself specifies."""
    return (
        sandbox.service == template.service
        and _same_claims(sandbox.volume_claim_templates or (), template.volume_claim_templates or ())
        and _follows_pod(
            bytes(sandbox.pod_template.spec), bytes(template.pod_template.spec), _built_in_walls(template), defaults
        )
    )


def _follows_pod(spec: bytes, template: bytes, walled: bool, defaults: ContainerDefaults) -> bool:
    if len(spec) + len(template) <= _SMALL:
        return same_pod(spec, template, walled, defaults)
    asked = (spec, template, b"walled" if walled else b"", repr(defaults).encode())
    return _large_pairs.answer(asked, lambda *_: _freshly_same_pod(spec, template, walled, defaults))


def _freshly_same_pod(spec: bytes, template: bytes, walled: bool, defaults: ContainerDefaults) -> bool:
    made: Json = msgspec.json.decode(spec)
    contract = _with_contract(msgspec.json.decode(template), walled)
    ours, unlimited = hardened(contract, defaults), hardened(contract)
    forms = [ours] if ours == unlimited else [ours, unlimited]
    forms += [] if unlimited is contract else [contract]
    return any(_same_spec(made, form) for form in forms)


same_pod = lru_cache(maxsize=512)(_freshly_same_pod)
# When a template changes, this is called for each member of its pools; members of the same version have the same bytes.


def _same_claims(left: tuple[VolumeClaimTemplate, ...], right: tuple[VolumeClaimTemplate, ...]) -> bool:
    return len(left) == len(right) and all(
        one.metadata.name == other.metadata.name
        and _same_spec(msgspec.json.decode(one.spec), msgspec.json.decode(other.spec))
        for one, other in zip(left, right, strict=True)
    )


def _same_spec(left: Json, right: Json) -> bool:
    return same(left, right) or same(_plain(left), _plain(right))


def _plain(value: Json) -> Json:
    """Normalizes a spec so that equal meaning gives equal JSON: drops empty lists and maps, makes quantities canonical."""
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
    # Raw parts are encoded as they came; decoding the result lets their keys be sorted, too.
    document = msgspec.json.decode(msgspec.json.encode(value))
    text = msgspec.json.encode(document, order="sorted")
    if len(text) > _SMALL:  # `name_hash` takes a tenth of a second for each megabyte
        return blake2b(text, digest_size=4).hexdigest()
    return name_hash(text.decode())
