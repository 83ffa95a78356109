"""The words that Kubernetes has for what can be wrong with a field, and the answers made of them.

Each function returns one metav1.StatusCause; `invalid_object` and `undecodable` make the error that the client sees.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from sandpool.kube.errors import BadRequest, Cause, Invalid
from sandpool.model.resource import Resource

IMMUTABLE = "field is immutable"
MOST_TOLD = 256
"""Causes in one answer. A hostile body can have hundreds of thousands, and the answer would be a hundred times its size."""

_ESCAPES = {
    '"': '\\"',
    "\\": "\\\\",
    "\a": "\\a",
    "\b": "\\b",
    "\f": "\\f",
    "\n": "\\n",
    "\r": "\\r",
    "\t": "\\t",
    "\v": "\\v",
}


def quoted(text: str) -> str:
    """As Go's %q prints a string."""
    if text.isprintable() and '"' not in text and "\\" not in text:
        return f'"{text}"'
    return '"' + "".join(_escaped(char) for char in text) + '"'


def _escaped(char: str) -> str:
    if char in _ESCAPES:
        return _ESCAPES[char]
    if char.isprintable():
        return char
    code = ord(char)
    if code < 0x80:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def shown(value: Any) -> str:
    """A bad value as it appears in a message: strings quoted, the rest as JSON."""
    if type(value) is str:
        return quoted(value)
    return msgspec.json.encode(value).decode()


def required(field: str, detail: str = "") -> Cause:
    return Cause("FieldValueRequired", f"Required value: {detail}" if detail else "Required value", field)


def invalid(field: str, value: Any, detail: str) -> Cause:
    return Cause("FieldValueInvalid", f"Invalid value: {shown(value)}: {detail}", field)


def broken_rule(field: str, detail: str) -> Cause:
    """A validation rule on an object: recent servers do not print the object."""
    return Cause("FieldValueInvalid", f"Invalid value: {detail}", field)


def immutable(field: str, value: Any) -> Cause:
    return invalid(field, value, IMMUTABLE)


def wrong_type(field: str, value: str, detail: str) -> Cause:
    return Cause("FieldValueTypeInvalid", f"Invalid value: {quoted(value)}: {detail}", field)


def not_supported(field: str, value: Any, supported: Iterable[Any]) -> Cause:
    values = ", ".join(quoted(v if type(v) is str else shown(v)) for v in supported)
    return Cause("FieldValueNotSupported", f"Unsupported value: {shown(value)}: supported values: {values}", field)


def duplicate(field: str, value: Any) -> Cause:
    return Cause("FieldValueDuplicate", f"Duplicate value: {shown(value)}", field)


def forbidden(field: str, detail: str) -> Cause:
    return Cause("FieldValueForbidden", f"Forbidden: {detail}", field)


def too_long(field: str, limit: int) -> Cause:
    unit = "byte" if limit == 1 else "bytes"
    return Cause("FieldValueTooLong", f"Too long: may not be more than {limit} {unit}", field)


def too_many(field: str, actual: int, limit: int) -> Cause:
    unit = "item" if limit == 1 else "items"
    return Cause("FieldValueTooMany", f"Too many: {actual}: must have at most {limit} {unit}", field)


class Refusal(Invalid):
    """An Invalid with the warnings that a server sends beside it."""

    warnings: tuple[str, ...] = ()


def invalid_object(
    resource: Resource[Any], name: str, found: Sequence[Cause], warnings: tuple[str, ...] = ()
) -> Refusal:
    """422 for an object that was understood but may not be stored. The message tells what is told twice once."""
    if len(found) > MOST_TOLD:
        rest = Cause("FieldValueInvalid", f"only the first {MOST_TOLD} problems are told", found[MOST_TOLD].field)
        found = [*found[:MOST_TOLD], rest]
    kind = f"{resource.kind}.{resource.group}" if resource.group else resource.kind
    details = {"name": name, "group": resource.group, "kind": resource.kind}
    error = Refusal(
        f"{kind} {quoted(name)} is invalid: {_joined(found)}",
        causes=tuple(found),
        details={key: value for key, value in details.items() if value},
    )
    error.warnings = warnings
    return error


def _joined(found: Sequence[Cause]) -> str:
    parts = list(dict.fromkeys(f"{cause.field}: {cause.message}" for cause in found))
    return parts[0] if len(parts) == 1 else f"[{', '.join(parts)}]"


def undecodable(resource: Resource[Any], why: str) -> BadRequest:
    """400 for a document that is not an object of its kind."""
    return BadRequest(f'{resource.kind} in version "{resource.version}" cannot be handled as a {resource.kind}: {why}')


def undecodable_patch(patched: Any, why: str) -> Invalid:
    """422 for a patch whose outcome is not an object of its kind; Kubernetes names neither kind nor object here."""
    text = msgspec.json.encode(patched).decode()
    cause = invalid("patch", text, why)
    return Invalid(f' "" is invalid: {cause.field}: {cause.message}', causes=(cause,))


def strict(problems: Iterable[str]) -> str:
    return "strict decoding error: " + ", ".join(problems)
