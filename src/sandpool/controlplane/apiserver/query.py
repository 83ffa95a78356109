"""Options of a request, parsed from its query and, for deletes, its body. Bad values are refused with Kubernetes' messages. Pure."""

from __future__ import annotations

from typing import Any, Final

from sandpool.base.shares import OPERATOR
from sandpool.controlplane.admission.admit import FieldValidation
from sandpool.controlplane.apiserver.request import Params, truth
from sandpool.controlplane.objects.options import DeleteOptions, ListQuery, WatchQuery, WriteOptions
from sandpool.controlplane.objects.refusals import bad_options
from sandpool.kube.api import Preconditions, Propagation
from sandpool.kube.errors import BadRequest, Cause, Invalid
from sandpool.model.metadata import Revision, Uid

_PLAIN_WRITE: Final = WriteOptions()
_PLAIN_LIST: Final = ListQuery()
_VALIDATIONS: Final = {"": FieldValidation.WARN, **{v.value: v for v in FieldValidation}}
_INT64: Final = 2**63


def write_options(params: Params, kind: str, tenant: str = OPERATOR) -> WriteOptions:
    """The options of a write. `kind` is CreateOptions, UpdateOptions or PatchOptions, for error messages."""
    if not params:
        return WriteOptions(tenant=tenant) if tenant else _PLAIN_WRITE
    dry_run = _dry_run(params.get("dryRun"), kind)
    _check_manager(params.get("fieldManager"), kind)
    if kind == "PatchOptions" and "force" in params:
        raise bad_options(
            kind, Cause("FieldValueForbidden", "Forbidden: may not be specified for non-apply patch", "force")
        )
    chosen = params.get("fieldValidation", "")
    validation = _VALIDATIONS.get(chosen)
    if validation is None:
        raise _unsupported(kind, "fieldValidation", f'"{chosen}"', '"", "Ignore", "Strict", "Warn"')
    return WriteOptions(dry_run, validation, tenant)


def _dry_run(value: str | None, kind: str) -> bool:
    if value is None:
        return False
    if value != "All":
        raise _unsupported(kind, "dryRun", f'["{value}"]', '"All"')
    return True


def _check_manager(value: str | None, kind: str) -> None:
    if value is None:
        return
    if len(value.encode("utf-8", "replace")) > 128:
        raise bad_options(kind, Cause("FieldValueTooLong", "Too long: may not be more than 128 bytes", "fieldManager"))
    if not value.isprintable():
        why = f'Invalid value: "{value}": should only contain printable characters'
        raise bad_options(kind, Cause("FieldValueInvalid", why, "fieldManager"))


def _unsupported(kind: str, field: str, value: str, supported: str) -> Invalid:
    return bad_options(
        kind, Cause("FieldValueNotSupported", f"Unsupported value: {value}: supported values: {supported}", field)
    )


def integer(params: Params, name: str) -> int | None:
    """A 64-bit parameter as Go parses one; absent or empty is None."""
    text = params.get(name)
    if not text:
        return None
    digits = text[1:] if text[0] in "+-" else text
    if not (digits.isascii() and digits.isdigit()):
        raise BadRequest(f'strconv.ParseInt: parsing "{text}": invalid syntax')
    value = int(text) if len(digits) < 40 else _INT64
    if not -_INT64 <= value < _INT64:
        raise BadRequest(f'strconv.ParseInt: parsing "{text}": value out of range')
    return value


def revision(params: Params, refusal: str = "invalid resource version: ") -> Revision | None:
    text = params.get("resourceVersion")
    if not text:
        return None
    if not (text.isascii() and text.isdigit()):
        why = "invalid syntax"
    elif len(text) > 20 or int(text) >= 2**64:
        why = "value out of range"
    else:
        return Revision(int(text))
    raise BadRequest(f'{refusal}resourceVersion: Invalid value: "{text}": strconv.ParseUint: parsing "{text}": {why}')


def list_query(params: Params) -> ListQuery:
    if not params:
        return _PLAIN_LIST
    integer(params, "timeoutSeconds")  # only validated: lists never wait
    limit = integer(params, "limit") or 0
    match = params.get("resourceVersionMatch", "")
    after = params.get("continue", "")
    at = revision(params)
    _check_list(params, match, after)
    return ListQuery(
        labels=params.get("labelSelector", ""),
        fields=params.get("fieldSelector", ""),
        limit=max(limit, 0),
        after=after,
        revision=at,
        match=match,
    )


def _check_list(params: Params, match: str, after: str) -> None:
    causes = []
    if match:
        if not params.get("resourceVersion"):
            causes.append(_forbidden("resourceVersionMatch is forbidden unless resourceVersion is provided"))
        if after:
            causes.append(_forbidden("resourceVersionMatch is forbidden when continue is provided"))
        if match not in ("Exact", "NotOlderThan"):
            supported = f'Unsupported value: "{match}": supported values: "Exact", "NotOlderThan", ""'
            causes.append(Cause("FieldValueNotSupported", supported, "resourceVersionMatch"))
        elif match == "Exact" and params.get("resourceVersion") == "0":
            causes.append(_forbidden('resourceVersionMatch "exact" is forbidden for resourceVersion "0"'))
    if "sendInitialEvents" in params:
        causes.append(_forbidden("sendInitialEvents is forbidden for list", "sendInitialEvents"))
    _refuse(causes)


def watch_query(params: Params) -> WatchQuery:
    initial = truth(params, "sendInitialEvents")
    match = params.get("resourceVersionMatch", "")
    causes = []
    if "sendInitialEvents" in params:
        if match != "NotOlderThan":
            causes.append(_forbidden("sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"))
    elif match:
        causes.append(_forbidden("resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided"))
    if match and match != "NotOlderThan":
        supported = f'Unsupported value: "{match}": supported values: "NotOlderThan"'
        causes.append(Cause("FieldValueNotSupported", supported, "resourceVersionMatch"))
    if params.get("continue"):
        causes.append(_forbidden("continue is forbidden for watch", "continue"))
    _refuse(causes)
    return WatchQuery(
        labels=params.get("labelSelector", ""),
        fields=params.get("fieldSelector", ""),
        since=revision(params),
        initial=initial,
        skip_initial="sendInitialEvents" in params and not initial,
        bookmarks=truth(params, "allowWatchBookmarks"),
    )


def _forbidden(why: str, field: str = "resourceVersionMatch") -> Cause:
    return Cause("FieldValueForbidden", f"Forbidden: {why}", field)


def _refuse(causes: list[Cause]) -> None:
    if not causes:
        return
    message = ", ".join(f"{cause.field}: {cause.message}" for cause in causes)
    message = f"[{message}]" if len(causes) > 1 else message
    raise Invalid(
        f'ListOptions.meta.k8s.io "" is invalid: {message}',
        causes=tuple(causes),
        details={"group": "meta.k8s.io", "kind": "ListOptions"},
    )


def delete_options(params: Params, body: dict[str, Any] | None) -> DeleteOptions:
    """The options of a delete: from the body if there is one, else from the query, as in Kubernetes."""
    if body:
        return _from_body(body)
    if not params:
        return DeleteOptions()
    orphan = truth(params, "orphanDependents") if "orphanDependents" in params else None
    return _delete(
        dry_run=_dry_run(params.get("dryRun"), "DeleteOptions"),
        grace=integer(params, "gracePeriodSeconds"),
        orphan=orphan,
        propagation=params.get("propagationPolicy") or None,
        preconditions=None,
    )


def _from_body(body: dict[str, Any]) -> DeleteOptions:
    kind, version = body.get("kind", "DeleteOptions"), body.get("apiVersion", "v1")
    if kind != "DeleteOptions":
        raise BadRequest(f'no kind "{kind}" is registered for version "{version}": DeleteOptions is expected')
    dry_run = _typed(body, "dryRun", list)
    wrong = [item for item in dry_run or () if item != "All"]
    if wrong:
        raise _unsupported("DeleteOptions", "dryRun", str(dry_run).replace("'", '"'), '"All"')
    conditions = _typed(body, "preconditions", dict) or {}
    uid, at = _typed(conditions, "uid", str), _typed(conditions, "resourceVersion", str)
    preconditions = None
    if uid is not None or at is not None:
        # -1 stands for a revision that cannot exist: it matches nothing, so the delete conflicts.
        number = None if at is None else Revision(int(at) if at.isascii() and at.isdigit() and len(at) < 20 else -1)
        preconditions = Preconditions(Uid(uid) if uid is not None else None, number)
    return _delete(
        dry_run=bool(dry_run),
        grace=_typed(body, "gracePeriodSeconds", int),
        orphan=_typed(body, "orphanDependents", bool),
        propagation=_typed(body, "propagationPolicy", str),
        preconditions=preconditions,
    )


def _delete(
    *,
    dry_run: bool,
    grace: int | None,
    orphan: bool | None,
    propagation: str | None,
    preconditions: Preconditions | None,
) -> DeleteOptions:
    if propagation is not None and orphan is not None:
        why = f'Invalid value: "{propagation}": orphanDependents and deletionPropagation cannot be both set'
        raise bad_options("DeleteOptions", Cause("FieldValueInvalid", why, "propagationPolicy"))
    if propagation is not None and propagation not in [p.value for p in Propagation]:
        supported = '"Foreground", "Background", "Orphan", "nil"'
        raise _unsupported("DeleteOptions", "propagationPolicy", f'"{propagation}"', supported)
    policy = Propagation(propagation) if propagation is not None else None
    if orphan is not None:
        policy = Propagation.ORPHAN if orphan else Propagation.BACKGROUND
    return DeleteOptions(dry_run, preconditions, policy, grace)


def _typed(body: dict[str, Any], field: str, wanted: type) -> Any:
    value = body.get(field)
    if value is None:
        return None
    if not isinstance(value, wanted) or (wanted is int and isinstance(value, bool)):
        raise BadRequest(
            f"json: cannot unmarshal {type(value).__name__} into Go struct field DeleteOptions.{field} "
            f"of type {wanted.__name__}"
        )
    return value
