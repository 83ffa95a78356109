"""Validation errors: the path of each problem in a document, with the message of Kubernetes.

Functions such as `invalid` or `required` return one metav1.StatusCause; `invalid_object` and `undecodable` make the error that the client
gets. During the walk over a document, a path is a chain of (parent, step) pairs. That costs one small tuple per object or list and nothing
per scalar; it becomes text only when there is a problem. Rules of single kinds use text from the start.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final, TypeAlias

import msgspec

from sandpool.kube.errors import BadRequest, Cause, Invalid
from sandpool.model.resource import Resource

IMMUTABLE = "field is immutable"
MOST_REPORTED = 256
"""The most causes in one response. A hostile body can have hundreds of thousands, and the response would be a hundred times its size."""
MOST_COLLECTED: Final = MOST_REPORTED + 1
"""Checks stop after this many causes: each costs more time than a valid value, and other requests wait meanwhile."""
LONGEST_SHOWN: Final = 1024
"""Characters of a value, or of a key, that a message shows. Quoting takes a hundred times as long as decoding, and several causes may show
the same value, which may be as long as a request."""
LONGEST_OBJECT: Final = 16 * 1024
"""The same for an object that a message shows as a whole."""

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
Place: TypeAlias = tuple[Any, str | int] | None
"""A path in the document: None is the document itself; otherwise the parent, and the field name or list index below it."""


def quoted(text: str, most: int = LONGEST_SHOWN) -> str:
    """Quotes a string as Go's %q does. The rest of a long one is left out."""
    text = cut(text, most)
    if text.isprintable() and '"' not in text and "\\" not in text:
        return f'"{text}"'
    return '"' + "".join(_escaped(char) for char in text) + '"'


def cut(text: str, most: int = LONGEST_SHOWN) -> str:
    return text if len(text) <= most else f"{text[:most]}..."


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
    """A bad value as a message shows it: strings are quoted, everything else is JSON."""
    if type(value) is str:
        return quoted(value)
    return cut(msgspec.json.encode(value).decode(), LONGEST_OBJECT)


def required(field: str, detail: str = "") -> Cause:
    return Cause("FieldValueRequired", f"Required value: {detail}" if detail else "Required value", field)


def invalid(field: str, value: Any, detail: str) -> Cause:
    return Cause("FieldValueInvalid", f"Invalid value: {shown(value)}: {detail}", field)


def broken_rule(field: str, detail: str) -> Cause:
    """The failure of a validation rule on an object: recent kube-apiservers do not print the object."""
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
    """An Invalid with the warnings that are sent with it."""

    warnings: tuple[str, ...] = ()


def invalid_object(
    resource: Resource[Any], name: str, found: Sequence[Cause], warnings: tuple[str, ...] = ()
) -> Refusal:
    """422 for an object that was decoded but may not be stored. The message lists each problem once."""
    if len(found) > MOST_REPORTED:
        rest = Cause(
            "FieldValueInvalid", f"only the first {MOST_REPORTED} problems are listed", found[MOST_REPORTED].field
        )
        found = [*found[:MOST_REPORTED], rest]
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
    """400 for a document that cannot be decoded as its kind."""
    return BadRequest(f'{resource.kind} in version "{resource.version}" cannot be handled as a {resource.kind}: {why}')


def undecodable_patch(patched: Any, why: str) -> Invalid:
    """422 for a patch whose result cannot be decoded as its kind. As in Kubernetes, it names neither kind nor object."""
    text = msgspec.json.encode(patched).decode()
    detail = f"Invalid value: {quoted(text, LONGEST_OBJECT)}: {cut(why, LONGEST_OBJECT)}"
    cause = Cause("FieldValueInvalid", detail, "patch")
    return Invalid(f' "" is invalid: {cause.field}: {cause.message}', causes=(cause,))


def strict(problems: Iterable[str]) -> str:
    return "strict decoding error: " + ", ".join(problems)


def render(place: Place) -> str:
    """A path as text: `spec.containers[0].name`; empty for the document itself."""
    steps: list[str | int] = []
    while place is not None:
        place, step = place
        steps.append(step)
    text = ""
    for step in reversed(steps):
        if type(step) is int:
            text += f"[{step}]"
        else:
            text = f"{text}.{step}" if text else str(step)
    return text


def fields_only(place: Place) -> str:
    """A path without list indexes, as Go's decoder names a field: `spec.containers.name`."""
    steps: list[str] = []
    while place is not None:
        place, step = place
        if type(step) is str:
            steps.append(step)
    return ".".join(reversed(steps))


def entry(field: str, key: str) -> str:
    """The path of a map entry, in the notation of built-in kinds: `data[key]`."""
    return f"{field}[{cut(key)}]"


class Enough(Exception):
    """The document has so many problems that checking stops."""


class _Causes(list[Cause]):
    def append(self, cause: Cause, /) -> None:
        if len(self) >= MOST_COLLECTED:
            raise Enough
        super().append(cause)

    def extend(self, causes: Iterable[Cause], /) -> None:
        for cause in causes:
            self.append(cause)


class Findings:
    """The findings of a walk over a document: causes, unknown fields, and the first reason why it cannot be decoded.

    Raises Enough after MOST_COLLECTED causes. Costs nothing while the document is valid.
    """

    __slots__ = ("amounts", "causes", "kind", "refused", "root", "undecodable", "unknown", "warnings")

    def __init__(self, kind: str = "", root: str = "") -> None:
        self.causes: list[Cause] = _Causes()
        self.unknown: list[str] = []
        self.warnings: tuple[str, ...] = ()
        self.undecodable = ""
        self.amounts = 0  # quantities that were checked
        self.refused = 0  # values that could not be decoded
        self.kind = kind  # of a built-in object; empty for custom resources, which have no Go struct
        self.root = root  # prefix that messages leave out: those of a status update name conditions[0], not status.conditions[0]

    def spot(self, place: Place, step: str | int) -> tuple[str, str]:
        """The field of a cause, and its name inside the message."""
        field = render((place, step))
        return field, field[len(self.root) :] if field.startswith(self.root) else field

    def cannot_decode(self, why: str) -> None:
        self.refused += 1
        if self.refused > MOST_COLLECTED:
            raise Enough
        if not self.undecodable:
            self.undecodable = why
