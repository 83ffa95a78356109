"""Decides whether an object may be stored, and in which form.

Errors come in the order of kube-apiserver: first what cannot be decoded (400), then unknown fields (400, if strict), then everything that is
invalid, in one error (422).
"""

from __future__ import annotations

from contextlib import suppress
from enum import StrEnum
from typing import Any

import msgspec

from sandpool.controlplane.admission import causes, metadata
from sandpool.controlplane.admission.causes import Enough, Findings
from sandpool.controlplane.admission.kind_schemas import Compiled, compiled, metadata_check
from sandpool.controlplane.admission.kinds.sandbox import check_scale, settle_rules
from sandpool.kube.errors import ApiError, Cause
from sandpool.model.resource import Resource


class FieldValidation(StrEnum):
    """The `fieldValidation` parameter: what happens to unknown fields."""

    IGNORE = "Ignore"
    WARN = "Warn"
    STRICT = "Strict"


class Admitted(msgspec.Struct, frozen=True, gc=False):
    """The object as it will be stored: pruned, defaulted, valid. Unchanged subtrees are the same Python objects as in the input."""

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

    Unknown fields are dropped, warned about or refused, according to `validation` (`strict decoding error: unknown field
    "spec.foo"`, 400 BadRequest); everything else raises Invalid with Kubernetes' causes. Subtrees that are the same
    Python object in `old` and `new` were checked when `old` was stored and are not checked again.
    `new` and `old` are never changed in place. `patched`: `new` is the result of a patch, for which a kube-apiserver has another
    error if it cannot be decoded (422, about the patch).

    A status update takes only the status from `new`. Any other write to a kind with a status subresource keeps the old
    status; a new object has only the status that its kind starts with. Uid, creation and deletion time and generation
    are those of `old`, so a caller that wants to change them must do so afterwards.
    """
    kind = compiled(resource)
    if subresource == "status" and old is not None:
        return _admit_status(resource, kind, new, old, validation, patched)
    out = Findings("" if kind.custom else resource.kind)
    cache_key, body = _known_rest(kind, new, old)
    settled = body is not None  # found in the cache: only the metadata must be checked
    if body is None:
        body = new
        if old is None or not _only_metadata_differs(new, old):
            try:
                body = kind.body(_with_its_status(resource, kind, new, old, out), old, None, "", out)
            except Enough:
                raise _too_wrong(resource, new, out, patched) from None
    old_meta = old["metadata"] if old is not None else None
    try:
        given, changed = _decoded_metadata(body.get("metadata"), old_meta, out)
    except Enough:
        raise _too_wrong(resource, new, out, patched) from None
    if out.undecodable or out.unknown:
        _stop_if_undecodable(resource, kind, new, out, validation, patched)
    if old_meta is None:
        meta, found = metadata.of_new(given, resource.namespaced, kind.rules)
    else:
        meta, found = metadata.of_update(given, changed, old_meta, kind.rules)
    if meta is not body.get("metadata"):
        body = {**body, "metadata": meta}
    found += out.causes
    if found or not settled:  # with other errors, the result also says whether rules were evaluated
        body, found = _with_rules(resource, kind, body, new, old, found)
    unknown = _unknown_warnings(kind, out, validation) if out.unknown else ()
    if found:  # the error carries warnings about unknown fields, but no others
        raise causes.invalid_object(resource, meta.get("name", ""), found, unknown)
    if cache_key and not settled and not out.unknown and kind.admitted is not None:
        kind.admitted.keep(cache_key, body)
    warnings = out.warnings + unknown
    if kind.custom and "finalizers" in meta:
        warnings += tuple(metadata.finalizer_warnings(meta, old_meta))
    return Admitted(body, warnings)


def _too_wrong(resource: Resource[Any], body: dict[str, Any], out: Findings, patched: bool) -> ApiError:
    """The error for an object with so many problems that the walk stopped."""
    if out.undecodable:
        return _undecodable(resource, body, out.undecodable, patched)
    meta = body.get("metadata")
    name = meta.get("name") if type(meta) is dict else ""
    return causes.invalid_object(resource, name if type(name) is str else "", list(out.causes), ())


def _known_rest(kind: Compiled, new: dict[str, Any], old: dict[str, Any] | None) -> tuple[bytes, dict[str, Any] | None]:
    """The key of a new object in the cache of admitted bodies, and the object with its cached admitted body, or None."""
    if kind.admitted is None:
        return b"", None
    if old is not None:
        return b"", new if _only_metadata_differs(new, old) else None
    cache_key, known = kind.admitted.find(new)
    return cache_key, None if known is None else {**known, "metadata": new.get("metadata")}


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
            raise _too_wrong(resource, new if out.undecodable else old, out, patched) from None
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
    """Whether only metadata changes (labels, annotations, owners), as in most writes."""
    for name, value in new.items():
        if value is not old.get(name, old) and name != "metadata":
            return False
    return len(new) == len(old)


def _with_its_status(
    resource: Resource[Any], kind: Compiled, new: dict[str, Any], old: dict[str, Any] | None, out: Findings
) -> dict[str, Any]:
    """`new` with the status of `old`. The status in `new` is only checked for unknown fields."""
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
    """The metadata as Go would decode it, and the part of it that is not the same Python object as before."""
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
    if len(out.unknown) > known:  # a kube-apiserver decodes metadata first
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
        raise _undecodable(resource, new, why, patched)


def _undecodable(resource: Resource[Any], new: dict[str, Any], why: str, patched: bool) -> ApiError:
    return causes.undecodable_patch(new, why) if patched else causes.undecodable(resource, why)


def _with_rules(
    resource: Resource[Any],
    kind: Compiled,
    body: dict[str, Any],
    new: dict[str, Any],
    old: dict[str, Any] | None,
    found: list[Cause],
) -> tuple[dict[str, Any], list[Cause]]:
    """Applies the rules of the kind: returns the completed body, and all causes found so far and by the rules."""
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
    if kind.custom:  # a kube-apiserver reports those in metadata first, and sorts the others
        fields = [f for f in fields if f.startswith("metadata.")]
        fields += sorted(f for f in out.unknown if not f.startswith("metadata."))
    return [f'unknown field "{field}"' for field in fields]


def _unknown_warnings(kind: Compiled, out: Findings, validation: FieldValidation) -> tuple[str, ...]:
    if not out.unknown or validation is FieldValidation.IGNORE:
        return ()
    return tuple(_unknown(kind, out))
