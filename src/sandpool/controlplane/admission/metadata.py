"""Validates ObjectMeta. The rules are the same for every kind, except for names.

An update is checked only where it differs from the old metadata: labels that are the same Python object were checked
when they were stored. Where Kubernetes silently restores system fields that a client may not change, so do we.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from typing import Any

import msgspec

from sandpool.controlplane.admission import causes
from sandpool.controlplane.admission.kinds.rules import KindRules
from sandpool.controlplane.admission.name_rules import (
    annotation_key,
    check_labels,
    generated_prefix,
    is_label_key,
    label_key,
)
from sandpool.kube.errors import Cause

ANNOTATIONS_LIMIT = 256 * 1024
_DROPPED_ON_CREATE = ("deletionTimestamp", "deletionGracePeriodSeconds", "managedFields", "selfLink")
_IMMUTABLE = ("name", "namespace", "uid", "deletionTimestamp", "deletionGracePeriodSeconds")
_COLLECTIONS = ("labels", "annotations", "finalizers", "ownerReferences")
_SHOWN_IN_FULL = 4
_REPEATED = (
    ".metadata.ownerReferences contains duplicate entries; API server dedups owner references in 1.20+, and may reject "
    "such requests as early as 1.24; please fix your requests; duplicate UID(s) observed: "
)
_STANDARD_FINALIZERS = ("orphan", "foregroundDeletion", "kubernetes")

Meta = dict[str, Any]

_encode = msgspec.json.Encoder(order="sorted").encode


def of_new(meta: Meta, namespaced: bool, rules: KindRules) -> tuple[Meta, list[Cause]]:
    """The metadata of a new object, and what is wrong with it."""
    rule = rules.name
    dropped: list[str] = []
    for part, value in meta.items():
        if part in _DROPPED_ON_CREATE or (not value and part in _COLLECTIONS):
            dropped.append(part)
    if dropped:
        meta = {name: value for name, value in meta.items() if name not in dropped}
    found: list[Cause] = []
    generate, name = meta.get("generateName"), meta.get("name")
    if generate:
        found += [causes.invalid("metadata.generateName", generate, text) for text in rule(generated_prefix(generate))]
    if not name:
        found.append(causes.required("metadata.name", "name or generateName is required"))
    elif wrong := rule(name):
        found += [causes.invalid("metadata.name", name, text) for text in wrong]
    if not namespaced and meta.get("namespace"):
        found.append(causes.forbidden("metadata.namespace", "not allowed on this type"))
    for part, check in _CHECKS.items():
        if part in meta:
            found += check(meta[part], None)
    if "finalizers" in meta:
        found += _finalizers(meta["finalizers"], rules.known_finalizers)
    return meta, found


def of_update(meta: Meta, changed: Meta, old: Meta, rules: KindRules) -> tuple[Meta, list[Cause]]:
    """The metadata after an update, and what is wrong with it. `changed` has the fields that are not the same Python object as before.

    kube-apiserver checks the metadata of an update several times and reports its findings each time; so do we.
    """
    found: list[Cause] = []
    system, empty = not old.keys() <= meta.keys(), False
    for name, value in changed.items():
        check = _CHECKS.get(name)
        if check is not None:
            empty = empty or not value
            found += check(value, old.get(name)) * rules.rounds
        elif name == "finalizers":
            empty = empty or not value
            found += _finalizers(value, rules.known_finalizers) * max(1, rules.rounds - 2)
        elif name != "resourceVersion":
            system = True
    if system:
        meta, immutable = _settled(meta, old)
        found = immutable * min(2, rules.rounds - 1) + found
    if empty:
        meta = {name: value for name, value in meta.items() if value or name not in _COLLECTIONS}
    if "deletionTimestamp" in old:
        found += _no_new_finalizers(meta.get("finalizers") or [], old.get("finalizers") or [])
    return meta, found


def _settled(meta: Meta, old: Meta) -> tuple[Meta, list[Cause]]:
    """The metadata with system fields restored from the old object, and errors about immutable fields."""
    forced: list[str] = [name for name in ("creationTimestamp", "generation", "deletionTimestamp") if name in old]
    forced += [name for name in ("uid", "deletionGracePeriodSeconds") if name in old and name not in meta]
    dropped = ("managedFields", "selfLink", *(() if "generation" in old else ("generation",)))
    kept = {name: value for name, value in meta.items() if name not in dropped}
    meta = kept | {name: old[name] for name in forced}
    changed = [name for name in _IMMUTABLE if meta.get(name) != old.get(name)]
    return meta, [causes.immutable(f"metadata.{name}", meta.get(name, "")) for name in changed]


def without_repeated_owners(owners: list[dict[str, Any]]) -> tuple[list[dict[str, Any]], str]:
    """The owners without duplicates, and a warning about them; the same list if there are none."""
    if len(owners) < 2:
        return owners, ""
    unique: dict[bytes, dict[str, Any]] = {}  # by their encoded bytes: there may be thousands
    repeated: dict[str, None] = {}
    for owner in owners:
        encoded = _encode(owner)
        if encoded in unique:
            repeated[str(owner.get("uid", ""))] = None
        else:
            unique[encoded] = owner
    if len(unique) == len(owners):
        return owners, ""
    return list(unique.values()), _REPEATED + ", ".join(repeated)


def finalizer_warnings(meta: Meta, old: Meta | None) -> list[str]:
    """Warnings of a kube-apiserver about finalizers that a write adds to a custom resource."""
    finalizers = meta.get("finalizers")
    before = old.get("finalizers") if old else None
    if not finalizers or finalizers is before:
        return []
    advice = "prefer a domain-qualified finalizer name {}to avoid accidental conflicts with other finalizer writers"
    return [
        f"metadata.finalizers: {causes.quoted(name)}: {advice.format('including a path (/) ' if '.' in name else '')}"
        for name in sorted(set(finalizers) - set(before or ()))
        if "/" not in name and name not in _STANDARD_FINALIZERS
    ]


def _labels(labels: dict[str, str], old: dict[str, str] | None) -> list[Cause]:
    return check_labels("metadata.labels", labels.items() - old.items() if old else labels.items())


def _annotations(annotations: dict[str, str], old: dict[str, str] | None) -> list[Cause]:
    found: list[Cause] = []
    for key in annotations.keys() - old.keys() if old else annotations:
        if not is_label_key(key.lower()):
            found += [causes.invalid("metadata.annotations", key, text) for text in annotation_key(key)]
            if len(found) > causes.MOST_REPORTED:
                break
    if not annotations_fit(annotations):
        found.append(causes.too_long("metadata.annotations", ANNOTATIONS_LIMIT))
    return found


def annotations_fit(annotations: dict[str, str]) -> bool:
    # A character has at most four bytes and a key at most 317: below that bound, bytes need not be counted.
    size = sum(map(len, annotations.values())) * 4 + len(annotations) * 317
    if size <= ANNOTATIONS_LIMIT:
        return True
    return sum(_bytes(key) + _bytes(value) for key, value in annotations.items()) <= ANNOTATIONS_LIMIT


def _bytes(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode())


def _finalizers(finalizers: list[str], known: bool) -> list[Cause]:
    wrong = [name for name in finalizers if not is_label_key(name)][: causes.MOST_COLLECTED]
    found = [causes.invalid("metadata.finalizers", name, text) for name in wrong for text in label_key(name)]
    if "orphan" in finalizers and "foregroundDeletion" in finalizers:
        detail = "finalizer orphan and foregroundDeletion cannot be both set"
        found.append(causes.invalid("metadata.finalizers", finalizers, detail))
    if known:
        detail = "name is neither a standard finalizer name nor is it fully qualified"
        unqualified = (
            causes.invalid(f"metadata.finalizers[{index}]", name, detail)
            for index, name in enumerate(finalizers)
            if "/" not in name and name not in _STANDARD_FINALIZERS
        )
        found += islice(unqualified, causes.MOST_COLLECTED)
    return found


def _no_new_finalizers(new: list[str], old: list[str]) -> list[Cause]:
    extra = sorted(set(new) - set(old))
    if not extra:
        return []
    names = ", ".join(causes.quoted(name) for name in extra)
    detail = f"no new finalizers can be added if the object is being deleted, found new finalizers []string{{{names}}}"
    return [causes.forbidden("metadata.finalizers", detail)]


def _owners(owners: list[dict[str, Any]], old: list[dict[str, Any]] | None) -> list[Cause]:
    found: list[Cause] = []
    controller = ""
    for owner in owners:
        get = owner.get
        if get("kind") in (None, "", "Event") or not (get("apiVersion") and get("name") and get("uid")):
            found += _owner(owner)
        if owner.get("controller"):
            name = f"{owner.get('kind', '')}/{owner.get('name', '')}"
            if controller and len(found) < _SHOWN_IN_FULL:  # each message shows the whole list
                detail = (
                    "Only one reference can have Controller set to true. "
                    f'Found "true" in references for {controller} and {name}'
                )
                found.append(causes.invalid("metadata.ownerReferences", [_as_go(each) for each in owners], detail))
            controller = controller or name
        if len(found) > causes.MOST_REPORTED:
            break
    return found


def _as_go(owner: dict[str, Any]) -> dict[str, Any]:
    """The fields in the order of the Go struct, as in the messages of a kube-apiserver."""
    order = ("apiVersion", "kind", "name", "uid", "controller", "blockOwnerDeletion")
    return {name: owner[name] for name in order if name in owner}


def _owner(owner: dict[str, Any]) -> list[Cause]:
    found: list[Cause] = []
    version = str(owner.get("apiVersion") or "").rpartition("/")[2]
    if not version:
        detail = "version must not be empty"
        found.append(causes.invalid("metadata.ownerReferences.apiVersion", owner.get("apiVersion", ""), detail))
    missing = [name for name in ("kind", "name", "uid") if not owner.get(name)]
    found += [causes.invalid(f"metadata.ownerReferences.{name}", "", "must not be empty") for name in missing]
    if owner.get("apiVersion") == "v1" and owner.get("kind") == "Event":
        detail = "/v1, Kind=Event is disallowed from being an owner"
        found.append(causes.invalid("metadata.ownerReferences", _as_go(owner), detail))
    return found


_CHECKS: dict[str, Callable[[Any, Any], list[Cause]]] = {
    "labels": _labels,
    "annotations": _annotations,
    "ownerReferences": _owners,
}
