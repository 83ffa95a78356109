"""Compiles a structural schema into one function that prunes, defaults and validates a document in a single pass.

Documents are never changed in place: where something differs, the containers on the path to it are copied, and everything else is returned
unchanged. A value that is the same Python object as in the old document was checked when that was stored, and is skipped.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import islice
from typing import Any, TypeAlias

import msgspec

from sandpool.controlplane.admission import causes, scalars
from sandpool.controlplane.admission.causes import Findings, Place, render
from sandpool.controlplane.admission.dialect import Dialect, Schema, not_go, wrong_type
from sandpool.controlplane.admission.scalars import Check

_NOTHING: Mapping[str, Any] = {}
_ABSENT: Any = object()
_LEAVES = (str, int)  # types of cached values; not bool, because True == 1 in Python
Unique: TypeAlias = Callable[[list[Any], Place, str | int, Findings], None]
"""Reports duplicate items of a list."""

_encode = msgspec.json.Encoder(order="sorted").encode
_GO_ZERO: dict[str, Any] = {"string": "", "integer": 0, "boolean": False, "object": {}, "array": []}


class _Field:
    """The compiled form of one property."""

    __slots__ = ("accepted", "check", "default", "null", "plain")

    def __init__(self, schema: Schema, dialect: Dialect) -> None:
        self.plain = scalars.plain_type(schema)
        self.accepted: set[str | int] = set()
        self.check = scalars.remembering(schema, compile_schema(schema, dialect), self.accepted)
        self.default = _ABSENT
        if schema.get("default") is not None:
            # Nested defaults are applied to the default here, once.
            self.default = self.check(schema["default"], None, None, "", Findings())
        self.null = None if schema.get("nullable") else self.default  # what replaces an explicit null


def _item(schema: Schema, dialect: Dialect) -> _Field:
    """The compiled form of the items of a list or a map. Go decodes a null there as the zero value."""
    field = _Field(schema, dialect)
    if field.null is _ABSENT and dialect is Dialect.BUILT_IN:
        field.null = _GO_ZERO.get(str(schema.get("type")), _ABSENT)
    return field


def compile_schema(schema: Schema, dialect: Dialect = Dialect.CUSTOM) -> Check:
    if schema.get("x-kubernetes-int-or-string"):
        return scalars.int_or_string(schema, dialect)
    kind = schema.get("type")
    if kind == "string":
        return scalars.string(schema, dialect)
    if kind == "integer":
        return scalars.integer(schema, dialect)
    if kind == "boolean":
        return scalars.boolean(schema, dialect)
    if kind == "number":
        return scalars.number(schema, dialect)
    if kind == "array":
        return _array(schema, dialect)
    if "properties" in schema:
        return _object(schema, dialect)
    if isinstance(schema.get("additionalProperties"), dict):
        return _map(schema, dialect)
    return _free_object(schema, dialect) if kind == "object" else scalars.anything


def _object(schema: Schema, dialect: Dialect) -> Check:
    fields = {name: _Field(sub, dialect) for name, sub in schema["properties"].items()}
    lookup = {name: (field.plain, field.accepted, field.null, field.check) for name, field in fields.items()}.get
    keep_unknown = bool(schema.get("x-kubernetes-preserve-unknown-fields"))
    fail = wrong_type if dialect is Dialect.CUSTOM else not_go
    complete = _completion(schema, fields, dialect)

    def check(value: Any, old: Any, place: Place, step: str | int, out: Findings) -> Any:
        if type(value) is not dict:
            return fail(schema, value, place, step, out)
        here: Place = (place, step) if step != "" else None
        before = old if type(old) is dict else _NOTHING
        result: dict[str, Any] = value
        for name, item in value.items():
            field = lookup(name)
            if field is None:
                fresh = item if keep_unknown else _unknown(here, name, out)
            else:
                plain, accepted, null, check_item = field
                kind = type(item)
                if kind is plain or (kind in _LEAVES and item in accepted):
                    continue
                if item is None:
                    fresh = null
                else:
                    prior = before.get(name)
                    fresh = item if prior is item else check_item(item, prior, here, name, out)
            if fresh is not item:
                if result is value:
                    result = dict(value)
                if fresh is _ABSENT:
                    del result[name]
                else:
                    result[name] = fresh
        return complete(result, here, out) if complete is not None else result

    return check


def _unknown(here: Place, name: str, out: Findings) -> Any:
    if len(out.unknown) < causes.MOST_COLLECTED:  # paths take longer than values
        out.unknown.append(render((here, name)))
    return _ABSENT


def _completion(
    schema: Schema, fields: dict[str, _Field], dialect: Dialect
) -> Callable[[dict[str, Any], Place, Findings], dict[str, Any]] | None:
    """A function that runs after the walk over the present fields: sets defaults of absent fields and reports required ones."""
    defaults = tuple((name, field.default) for name, field in fields.items() if field.default is not _ABSENT)
    required = tuple(schema.get("required", ()))
    wanted = frozenset(required).union(name for name, _ in defaults)
    if not wanted:
        return None

    def complete(result: dict[str, Any], here: Place, out: Findings) -> dict[str, Any]:
        if wanted <= result.keys():
            return result
        added = {name: default for name, default in defaults if name not in result}
        if added:
            result = {**result, **added}
        out.causes.extend(causes.required(render((here, name))) for name in required if name not in result)
        return result

    def complete_go(result: dict[str, Any], here: Place, out: Findings) -> dict[str, Any]:
        """Like `complete`, for Go structs: an empty string counts as absent."""
        added = {name: value for name, value in defaults if result.get(name, "") == "" and value != result.get(name)}
        if added:
            result = {**result, **added}
        out.causes.extend(causes.required(render((here, name))) for name in required if result.get(name, "") == "")
        return result

    return complete if dialect is Dialect.CUSTOM else complete_go


def _map(schema: Schema, dialect: Dialect) -> Check:
    entry = _item(schema["additionalProperties"], dialect)
    plain, check_item = entry.plain, entry.check
    custom = dialect is Dialect.CUSTOM
    fail = wrong_type if custom else not_go
    least, most = schema.get("minProperties", 0), schema.get("maxProperties")

    def check(value: Any, old: Any, place: Place, step: str | int, out: Findings) -> Any:
        if type(value) is not dict:
            return fail(schema, value, place, step, out)
        here = (place, step)
        before = old if type(old) is dict else _NOTHING
        result: dict[str, Any] = value
        for name, item in value.items():
            if type(item) is plain:
                continue
            if item is None:
                fresh = entry.null
            else:
                prior = before.get(name)
                # Go's messages do not name the entry of a map.
                fresh = item if prior is item else check_item(item, prior, here, name if custom else 0, out)
            if fresh is not item:
                if result is value:
                    result = dict(value)
                if fresh is _ABSENT:
                    del result[name]
                else:
                    result[name] = fresh
        if len(result) < least or (most is not None and len(result) > most):
            _report_count(len(result), least, most, "properties", place, step, out)
        return result

    return check


def _free_object(schema: Schema, dialect: Dialect) -> Check:
    """An object without properties: kept unchanged if the schema preserves unknown fields, else emptied."""
    keep = bool(schema.get("x-kubernetes-preserve-unknown-fields")) or schema.get("additionalProperties") is True
    fail = wrong_type if dialect is Dialect.CUSTOM else not_go

    def check(value: Any, old: Any, place: Place, step: str | int, out: Findings) -> Any:
        if type(value) is not dict:
            return fail(schema, value, place, step, out)
        if keep or not value:
            return value
        for name in islice(value, causes.MOST_COLLECTED):
            _unknown((place, step), name, out)
        return {}

    return check


def _array(schema: Schema, dialect: Dialect) -> Check:
    item_field = _item(schema.get("items") or {}, dialect)
    plain, null, check_item = item_field.plain, item_field.null, item_field.check
    unique: Unique | None = unique_items(schema) if dialect is Dialect.CUSTOM else None
    fail = wrong_type if dialect is Dialect.CUSTOM else not_go
    least, most = schema.get("minItems", 0), schema.get("maxItems")

    def check(value: Any, old: Any, place: Place, step: str | int, out: Findings) -> Any:
        if type(value) is not list:
            return fail(schema, value, place, step, out)
        here = (place, step)
        known = {id(item) for item in old} if type(old) is list else ()
        result: list[Any] = value
        for index, item in enumerate(value):
            if type(item) is plain or (known and id(item) in known):
                continue
            prior = old[index] if known and index < len(old) else None
            if item is not None or null is _ABSENT:
                fresh = check_item(item, prior, here, index, out)
            else:
                fresh = None if null is None else check_item(null, None, here, index, out)
            if fresh is not item:
                if result is value:
                    result = list(value)
                result[index] = fresh
        if len(result) < least or (most is not None and len(result) > most):
            _report_count(len(result), least, most, "items", place, step, out)
        if unique is not None:
            unique(result, place, step, out)
        return result

    return check


def _report_count(
    size: int, least: int, most: int | None, what: str, place: Place, step: str | int, out: Findings
) -> None:
    field, name = out.spot(place, step)
    if most is not None and size > most:
        out.causes.append(causes.too_many(field, size, most))
    else:
        out.causes.append(causes.invalid(field, size, f"{name} in body should have at least {least} {what}"))


def unique_items(schema: Schema) -> Unique | None:
    """The check for duplicates in a list of type set or map; None if duplicates are allowed."""
    kind = schema.get("x-kubernetes-list-type")
    if kind == "set":
        return _unique_set
    if kind == "map":
        return _unique_map(tuple(schema.get("x-kubernetes-list-map-keys", ())))
    return None


def _unique_set(items: list[Any], place: Place, step: str | int, out: Findings) -> None:
    _report(items, items, place, step, out)


def _unique_map(keys: tuple[str, ...]) -> Unique:
    def check(items: list[Any], place: Place, step: str | int, out: Findings) -> None:
        for index, item in enumerate(items):
            if type(item) is not dict:
                if item is not None:
                    detail = "must be an object for an array of list-type map"
                    out.causes.append(causes.invalid(render(((place, step), index)), item, detail))
                return
        if len(items) < 2:
            return
        if len(keys) == 1:
            names = [item.get(keys[0]) for item in items]
            if set(map(type, names)) == {str} and len(set(names)) == len(names):
                return
        _report(items, [{key: item[key] for key in keys if key in item} for item in items], place, step, out)

    return check


def _report(items: list[Any], identities: list[Any], place: Place, step: str | int, out: Findings) -> None:
    """Reports the second occurrence of an item, but no further ones."""
    seen: dict[bytes, int] = {}
    for index, identity in enumerate(identities):
        text = _encode(identity)
        times = seen.get(text, 0)
        if times == 1:
            out.causes.append(causes.duplicate(render(((place, step), index)), msgspec.Raw(text)))
        seen[text] = times + 1
