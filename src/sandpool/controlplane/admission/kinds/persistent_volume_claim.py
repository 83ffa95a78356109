"""Rules for PersistentVolumeClaims: the spec is immutable, except that the size may grow."""

from __future__ import annotations

from typing import Any

from sandpool.controlplane.admission import causes
from sandpool.controlplane.admission.kinds.rules import Body, KindRules
from sandpool.controlplane.admission.name_rules import dns_subdomain
from sandpool.kube.errors import Cause
from sandpool.model.quantities import parse

_MODES = ["ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"]
_ONCE_POD = "ReadWriteOncePod"
_STORAGE = "spec.resources[storage]"
_FIXED = "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims"


def _prepare(body: Body, old: Body | None) -> Body:
    return {**body, "status": {"phase": "Pending"}} if old is None else body


def _check(body: Body, old: Body | None) -> list[Cause]:
    spec = body.get("spec") or {}
    if old is not None and spec is old.get("spec"):
        return []
    found: list[Cause] = []
    modes = spec.get("accessModes") or []
    if not modes:
        found.append(causes.required("spec.accessModes", "at least 1 access mode is required"))
    unknown = [mode for mode in modes if mode not in _MODES][: causes.MOST_COLLECTED]
    found += [causes.not_supported("spec.accessModes", mode, _MODES) for mode in unknown]
    if _ONCE_POD in modes and len(set(modes)) > 1:
        found.append(causes.forbidden("spec.accessModes", "may not use ReadWriteOncePod with other access modes"))
    size = _size(spec)
    if size is None:
        found.append(causes.required(_STORAGE))
    elif parse(size).nanos <= 0:
        found.append(causes.invalid(_STORAGE, size, "must be greater than zero"))
    storage_class = spec.get("storageClassName")
    if storage_class:
        found += [causes.invalid("spec.storageClassName", storage_class, text) for text in dns_subdomain(storage_class)]
    if old is not None:
        found += _check_change(body, old, spec, old.get("spec") or {})
    return found


def _check_change(body: Body, old: Body, spec: dict[str, Any], before: dict[str, Any]) -> list[Cause]:
    found: list[Cause] = []
    bound = (body.get("status") or {}).get("phase") == "Bound"
    if _settled(spec, before, bound) != _settled(before, before, bound):
        found.append(causes.forbidden("spec", _FIXED))
    size, old_size = _size(spec), _size(before)
    if size is not None and old_size is not None and parse(size) < parse(old_size):
        capacity = ((old.get("status") or {}).get("capacity") or {}).get("storage", "0")
        if parse(size) <= parse(capacity):
            found.append(
                causes.forbidden("spec.resources.requests.storage", "field can not be less than status.capacity")
            )
    if spec.get("volumeMode") != before.get("volumeMode"):
        found.append(causes.immutable("volumeMode", spec.get("volumeMode")))
    return found


def _settled(spec: dict[str, Any], before: dict[str, Any], bound: bool) -> dict[str, Any]:
    """The part of the spec that may not change. A volume name may be set once; a bound claim may request more storage."""
    fixed = {name: value for name, value in spec.items() if value not in (None, {}, [])}
    if not before.get("volumeName"):
        fixed.pop("volumeName", None)
    if bound:
        fixed.pop("volumeAttributesClassName", None)
        requests = {**((spec.get("resources") or {}).get("requests") or {}), "storage": ""}
        fixed["resources"] = {**(spec.get("resources") or {}), "requests": requests}
    return fixed


def _size(spec: dict[str, Any]) -> Any:
    return ((spec.get("resources") or {}).get("requests") or {}).get("storage")


CLAIM = KindRules(
    rounds=4,
    known_finalizers=True,
    defaults={"spec.volumeMode": "Filesystem"},
    values={"spec.volumeMode": ["Block", "Filesystem"]},
    prepare=_prepare,
    check=_check,
)
