"""Rules for our own kinds. All except two are in their schemas: one is a CEL rule on a kube-apiserver, the other limits the size of a
sandbox's pod on this machine."""

from __future__ import annotations

from typing import Any

from sandpool.controlplane.admission import causes
from sandpool.controlplane.admission.kinds.pod import too_much_of_sandbox
from sandpool.controlplane.admission.kinds.rules import Body, KindRules
from sandpool.kube.errors import Cause
from sandpool.model.resource import Resource
from sandpool.model.sandbox import IMMUTABLE_CLAIMS_MESSAGE

_BLOCKING = frozenset(
    ("FieldValueNotSupported", "FieldValueRequired", "FieldValueTooLong", "FieldValueTooMany", "FieldValueTypeInvalid")
)
_UNCHECKED = Cause(
    "FieldValueInvalid",
    "Invalid value: null: some validation rules were not checked because the object was invalid; "
    "correct the existing errors to complete validation",
    "<nil>",
)
_MAX_INT32 = 2**31 - 1
_ABSENT = object()
_GO_TYPES: dict[type, str] = {str: "string", float: "float64", int: "float64", bool: "bool"}


def _check(body: Body, old: Body | None) -> list[Cause]:
    return too_much_of_sandbox(body.get("spec")) if old is None else _claims_stay(body, old)


def _claims_stay(body: Body, old: Body) -> list[Cause]:
    if body.get("spec") is old.get("spec"):
        return []
    new_claims, old_claims = (_claims(document) for document in (body, old))
    if new_claims is old_claims or new_claims == old_claims:
        return []
    return [causes.broken_rule("spec", IMMUTABLE_CLAIMS_MESSAGE)]


def _claims(body: Body) -> Any:
    spec = body.get("spec")
    return spec.get("volumeClaimTemplates", _ABSENT) if type(spec) is dict else _ABSENT


def settle_rules(found: list[Cause], broken: list[Cause]) -> list[Cause]:
    """Combines schema errors and broken rules. After some schema errors a kube-apiserver does not evaluate rules, and a cause says so."""
    if any(cause.reason in _BLOCKING for cause in found):
        return [*found, _UNCHECKED]
    return found + broken


def check_scale(resource: Resource[Any], given: Body) -> list[Cause]:
    """Checks the replicas that the scale subresource shows, in the object as it was sent."""
    if resource.scale is None:
        return []
    path = resource.scale.spec_replicas
    value: Any = given
    for step in path.lstrip(".").split("."):
        value = value.get(step) if type(value) is dict else None
    if value is None or (type(value) is int and 0 <= value <= _MAX_INT32):
        return []
    if type(value) is int and abs(value) < 2**63:
        detail = "should be a non-negative integer" if value < 0 else f"should be less than or equal to {_MAX_INT32}"
        return [causes.invalid(path, value, detail)]
    shown = f"{value:g}" if type(value) is float else str(value)
    go_type = _GO_TYPES.get(type(value), "object")
    detail = f"{path} accessor error: {shown} is of the type {go_type}, expected int64"
    return [causes.invalid(path, 0, detail)]


SANDBOX = KindRules(check=_check, cacheable=True)
CLAIM = KindRules(cacheable=True)
