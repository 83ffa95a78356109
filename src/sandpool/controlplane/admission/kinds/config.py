"""Rules for ConfigMaps and Secrets: keys that can be file names, a size limit, and immutable objects."""

from __future__ import annotations

import base64
from typing import Any

from sandpool.controlplane.admission import causes
from sandpool.controlplane.admission.causes import entry
from sandpool.controlplane.admission.kinds.rules import Body, KindRules
from sandpool.controlplane.admission.name_rules import config_key, is_config_key
from sandpool.kube.errors import Cause

SIZE_LIMIT = 1024 * 1024
_FROZEN = "field is immutable when `immutable` is set"
_NEEDED_KEYS = {
    "kubernetes.io/dockercfg": (".dockercfg",),
    "kubernetes.io/dockerconfigjson": (".dockerconfigjson",),
    "kubernetes.io/ssh-auth": ("ssh-privatekey",),
    "kubernetes.io/tls": ("tls.crt", "tls.key"),
}
_SERVICE_ACCOUNT = "kubernetes.io/service-account.name"


def _check_config_map(body: Body, old: Body | None) -> list[Cause]:
    found = _frozen(body, old, ("data", "binaryData"))
    data, binary = body.get("data") or {}, body.get("binaryData") or {}
    found += _keys("data", data)
    found += [
        causes.invalid(entry("data", key), key, "duplicate of key present in binaryData")
        for key in [key for key in data if key in binary][: causes.MOST_COLLECTED]
    ]
    found += _keys("binaryData", binary)
    if sum(len(value.encode()) for value in data.values()) + _decoded_size(binary) > SIZE_LIMIT:
        found.append(causes.too_long("[]", SIZE_LIMIT))  # how Go prints the path of the object itself
    return found


def _prepare_secret(body: Body, old: Body | None) -> Body:
    """Moves stringData, which is write-only, into data."""
    if "stringData" not in body:
        return body
    written = {key: base64.b64encode(text.encode()).decode() for key, text in body["stringData"].items()}
    rest = {name: value for name, value in body.items() if name != "stringData"}
    return {**rest, "data": {**(body.get("data") or {}), **written}}


def _check_secret(body: Body, old: Body | None) -> list[Cause]:
    found: list[Cause] = []
    kind = body.get("type", "")
    if old is not None and kind != old.get("type", ""):
        found.append(causes.immutable("type", kind))
    found += _frozen(body, old, ("data",))
    data = body.get("data") or {}
    found += _keys("data", data)
    if _decoded_size(data) > SIZE_LIMIT:
        found.append(causes.too_long("data", SIZE_LIMIT))
    found += [causes.required(entry("data", key)) for key in _NEEDED_KEYS.get(kind, ()) if key not in data]
    if kind == "kubernetes.io/basic-auth" and not data.keys() & {"username", "password"}:
        found += [causes.required(entry("data", key)) for key in ("username", "password")]
    annotations = (body.get("metadata") or {}).get("annotations") or {}
    if kind == "kubernetes.io/service-account-token" and not annotations.get(_SERVICE_ACCOUNT):
        found.append(causes.required(entry("metadata.annotations", _SERVICE_ACCOUNT)))
    return found


def _frozen(body: Body, old: Body | None, names: tuple[str, ...]) -> list[Cause]:
    if old is None or not old.get("immutable"):
        return []
    found = [] if body.get("immutable") else [causes.forbidden("immutable", _FROZEN)]
    return found + [
        causes.forbidden(name, _FROZEN)
        for name in names
        if body.get(name) is not old.get(name) and (body.get(name) or {}) != (old.get(name) or {})
    ]


def _keys(field: str, data: dict[str, Any]) -> list[Cause]:
    wrong = [key for key in data if not is_config_key(key)][: causes.MOST_COLLECTED]
    return [causes.invalid(entry(field, key), key, text) for key in wrong for text in config_key(key)]


def _decoded_size(data: dict[str, Any]) -> int:
    return sum(len(value) * 3 // 4 - value[-2:].count("=") for value in data.values())


CONFIG_MAP = KindRules(rounds=4, known_finalizers=True, check=_check_config_map)
SECRET = KindRules(
    rounds=4, known_finalizers=True, defaults={"type": "Opaque"}, prepare=_prepare_secret, check=_check_secret
)
