"""Decides whether an object may be stored, and in which form.

The order is a server's: what cannot be decoded (400), what is unknown (400, if strict), and only then everything that is
wrong at once (422).
"""

from __future__ import annotations

from contextlib import suppress
from enum import StrEnum
from typing import Any

import msgspec

from sandpool.controlplane.admission import causes, metadata
from sandpool.controlplane.admission.compiled import Compiled, compiled, metadata_check
from sandpool.controlplane.admission.findings import Enough, Findings
from sandpool.controlplane.admission.kinds.sandbox import check_scale, settle_rules
from sandpool.kube.errors import ApiError, Cause
from sandpool.model.resource import Resource


class FieldValidation(StrEnum):
    IGNORE = "Ignore"
    WARN = "Warn"
    STRICT = "Strict"


class Admitted(msgspec.Struct, frozen=True, gc=False):
    """The object as it will be stored: pruned, defaulted, valid. Unchanged subtrees are the very same objects."""

    body: dict[str, Any]
    warnings: tuple[str, ...] = ()


def admit(
    resource: Resource[Any],
    new: dict[str, Any],
    old: dict[str, Any] | None,
    *,
    subresource: str = "",
    validation: FieldValidation = FieldValidation.WARN,
    patched: bool = False,
) -> Admitted:
    """Prunes, defaults and validates `new`, which replaces `old` (None: it is created).

    Unknown fields are dropped, warned about or refused as `validation` says (`strict decoding error: unknown field
    "spec.foo"`, 400 BadRequest); anything else wrong raises Invalid with causes as Kubernetes words them. Subtrees that are the same
    Python object in `old` and `new` were checked when `old` was stored and are not looked at again.
    `new` and `old` are never changed in place. `patched`: `new` is the outcome of a patch, for which a server words what
    it cannot decode differently (422, about the patch).

    Of a status update only the status is taken from `new`; of any other write to a kind with a status subresource the
    status is what it was, and a new object has none but that of its kind. Uid, creation and deletion time and generation
    are those of `old`, so a caller that wants to change them does so afterwards.
    """
    kind = compiled(resource)
    if subresource == "status" and old is not None:
        return _admit_status(resource, kind, new, old, validation, patched)
    out = Findings("" if kind.custom else resource.kind)
    said, body = _known_rest(kind, new, old)
    settled = body is not None  # nothing is left to be said but about the metadata
    if body is None:
        body = new
        if old is None or not _only_metadata_differs(new, old):
            try:
                body = kind.body(_with_its_status(resource, kind, new, old, out), old, None, "", out)
            except Enough:
                raise _too_wrong(resource, new, out) from None
    old_meta = old["metadata"] if old is not None else None
    try:
        given, changed = _decoded_metadata(body.get("metadata"), old_meta, out)
    except Enough:
        raise _too_wrong(resource, new, out) from None
    if out.undecodable or out.unknown:
        _stop_if_undecodable(resource, kind, new, out, validation, patched)
    if old_meta is None:
        meta, found = metadata.of_new(given, resource.namespaced, kind.rules)
    else:
        meta, found = metadata.of_update(given, changed, old_meta, kind.rules)
    if meta is not body.get("metadata"):
        body = {**body, "metadata": meta}
    found += out.causes
    if found or not settled:  # what is found elsewhere says whether rules were looked at
        body, found = _with_rules(resource, kind, body, new, old, found)
    unknown = _unknown_warnings(kind, out, validation) if out.unknown else ()
    if found:  # what was read wrongly is told all the same; what would have been stored badly was not stored
        raise causes.invalid_object(resource, meta.get("name", ""), found, unknown)
    if said and not settled and not out.unknown and kind.approved is not None:
        kind.approved.keep(said, body)
    warnings = out.warnings + unknown
    if kind.custom and "finalizers" in meta:
        warnings += tuple(metadata.finalizer_warnings(meta, old_meta))
    return Admitted(body, warnings)


def _too_wrong(resource: Resource[Any], body: dict[str, Any], out: Findings) -> ApiError:
    """What was found until nobody looked further."""
    meta = body.get("metadata")
    name = meta.get("name") if type(meta) is dict else ""
    return causes.invalid_object(resource, name if type(name) is str else "", list(out.causes), ())


def _known_rest(kind: Compiled, new: dict[str, Any], old: dict[str, Any] | None) -> tuple[bytes, dict[str, Any] | None]:
    """The object with a rest (all but the metadata) that was found good before, if there is such a one; and what a new
    one is to be known by."""
    if kind.approved is None:
        return b"", None
    if old is not None:
        return b"", new if _only_metadata_differs(new, old) else None
    said, known = kind.approved.find(new)
    return said, None if known is None else {**known, "metadata": new.get("metadata")}


def _admit_status(
    resource: Resource[Any],
    kind: Compiled,
    new: dict[str, Any],
    old: dict[str, Any],
    validation: FieldValidation,
    patched: bool,
) -> Admitted:
    before, status = old.get("status"), new.get("status")
    if status is before:
        return Admitted(old)
    out = Findings("" if kind.custom else resource.kind, root="status.")
    body = dict(old)
    if status is not None:
        try:
            body["status"] = kind.status(status, before, None, "status", out)
        except Enough:
            raise _too_wrong(resource, old, out) from None
    else:
        del body["status"]
    warnings: tuple[str, ...] = ()
    if out.undecodable or out.unknown:
        _stop_if_undecodable(resource, kind, new, out, validation, patched)
        warnings = _unknown_warnings(kind, out, validation)
    found = out.causes
    if found and kind.custom and kind.rules.check is not None:
        found = settle_rules(found, [])
    if found:
        raise causes.invalid_object(resource, old["metadata"].get("name", ""), found, warnings)
    return Admitted(body, warnings)


def _only_metadata_differs(new: dict[str, Any], old: dict[str, Any]) -> bool:
    """The most frequent write by far: labels, annotations, owners."""
    for name, value in new.items():
        if value is not old.get(name, old) and name != "metadata":
            return False
    return len(new) == len(old)


def _with_its_status(
    resource: Resource[Any], kind: Compiled, new: dict[str, Any], old: dict[str, Any] | None, out: Findings
) -> dict[str, Any]:
    """`new` with the status that it may have: that of `old`. Of what it says instead only unknown fields are told."""
    status = new.get("status")
    before = old.get("status") if old is not None else None
    if status is before or not resource.has_status or (old is None and kind.rules.keeps_status):
        return new
    rest = {name: value for name, value in new.items() if name != "status"}
    if status is not None:
        ignored = Findings()
        with suppress(Enough):
            kind.status(status, before, None, "status", ignored)
        out.unknown += ignored.unknown
    return rest if before is None else {**rest, "status": before}


def _decoded_metadata(
    meta: Any, old_meta: dict[str, Any] | None, out: Findings
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The metadata as Go would read it, and the part of it that is not the very same as before."""
    if meta is None:
        meta = {}
    before = old_meta or {}
    changed = meta
    if type(meta) is dict:
        changed = {name: value for name, value in meta.items() if value is not before.get(name, out)}
        if not changed:
            return meta, changed
    known = len(out.unknown)
    checked = metadata_check()(changed, before, None, "metadata", out)
    if len(out.unknown) > known:  # a server reads metadata first
        out.unknown[:] = out.unknown[known:] + out.unknown[:known]
    if type(checked) is dict and "ownerReferences" in checked and not out.undecodable:
        owners, warning = metadata.without_repeated_owners(checked["ownerReferences"])
        if warning:
            out.warnings += (warning,)
            checked = {**checked, "ownerReferences": owners}
    if checked is not changed:
        meta = {name: value for name, value in meta.items() if name not in changed} | checked
    return meta, checked


def _stop_if_undecodable(
    resource: Resource[Any],
    kind: Compiled,
    new: dict[str, Any],
    out: Findings,
    validation: FieldValidation,
    patched: bool,
) -> None:
    why = out.undecodable
    if not why and out.unknown and validation is FieldValidation.STRICT:
        why = causes.strict(_unknown(kind, out))
    if why:
        error: ApiError = causes.undecodable_patch(new, why) if patched else causes.undecodable(resource, why)
        raise error


def _with_rules(
    resource: Resource[Any],
    kind: Compiled,
    body: dict[str, Any],
    new: dict[str, Any],
    old: dict[str, Any] | None,
    found: list[Cause],
) -> tuple[dict[str, Any], list[Cause]]:
    """The body completed by the rules of the kind; what was found so far, and what the rules add to it."""
    if kind.rules.prepare is not None:
        body = kind.rules.prepare(body, old)
    if resource.scale is not None:
        found = found + check_scale(resource, new)
    if kind.rules.check is None:
        return body, found
    broken = kind.rules.check(body, old)
    if not found:
        return body, broken
    return body, settle_rules(found, broken) if kind.custom else found + broken


def _unknown(kind: Compiled, out: Findings) -> list[str]:
    fields = out.unknown
    if kind.custom:  # a server finds those in metadata first, and sorts the others
        fields = [f for f in fields if f.startswith("metadata.")]
        fields += sorted(f for f in out.unknown if not f.startswith("metadata."))
    return [f'unknown field "{field}"' for field in fields]


def _unknown_warnings(kind: Compiled, out: Findings, validation: FieldValidation) -> tuple[str, ...]:
    if not out.unknown or validation is FieldValidation.IGNORE:
        return ()
    return tuple(_unknown(kind, out))
