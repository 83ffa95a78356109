"""Compiles checks of single values: strings, numbers, booleans and int-or-string. A check returns the value as it will be stored."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import date
from typing import Any, TypeAlias

from sandpool.controlplane.admission import causes
from sandpool.controlplane.admission.causes import Enough, Findings, Place, render
from sandpool.controlplane.admission.dialect import (
    Dialect,
    Schema,
    bad_base64,
    bad_time,
    not_go,
    readable_time,
    wrong_type,
)
from sandpool.model import quantities

Check: TypeAlias = Callable[[Any, Any, Place, str | int, Findings], Any]
"""(value, old value, path of the parent, step below it, findings) -> the value to store."""
_Rule: TypeAlias = Callable[[str, Place, str | int, Findings], bool]
"""Checks a string; False if it reported something after which no other rule is tried."""

_NO_QUANTITY = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
AMOUNTS = 2048
"""The most quantities in one object: each costs as much as dozens of other values. Documented in docs/reference/pods.md."""
_SHORT = 256  # longest text, in characters, that is cached
_REMEMBERED = 512  # cached values of one field
_INT32 = (-(2**31), 2**31 - 1)
_INT64 = (-(2**63), 2**63 - 1)
_DAY = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_TIME = re.compile(r"[0-9]{2}:[0-9]{2}:[0-9]{2}(.[0-9]+)?(z|[+-][0-9]{2}:[0-9]{2})")


def plain_type(schema: Schema) -> type | None:
    """The Python type that needs no further check, for a string or boolean without constraints; else None."""
    kind = schema.get("type")
    if kind == "boolean" and "enum" not in schema:
        return bool
    conditions = ("enum", "pattern", "minLength", "maxLength", "format")
    if kind == "string" and not any(condition in schema for condition in conditions):
        return str
    return None


def remembering(schema: Schema, check: Check, accepted: set[str | int]) -> Check:
    """Wraps a check: adds valid strings and integers to `accepted`, which the walk then skips. The same few types, reasons and times
    are written again and again."""
    if schema.get("type") not in ("string", "integer") or plain_type(schema) is str:
        return check

    def remember(value: Any, old: Any, place: Place, step: str | int, out: Findings) -> Any:
        before = len(out.causes)
        fresh = check(value, old, place, step, out)
        short = type(value) is int or (type(value) is str and len(value) <= _SHORT)
        if short and fresh is value and len(out.causes) == before and not out.undecodable:
            if len(accepted) >= _REMEMBERED:
                accepted.clear()
            accepted.add(value)
        return fresh

    return remember


def anything(value: Any, old: Any, place: Place, step: str | int, out: Findings) -> Any:
    return value


def boolean(schema: Schema, dialect: Dialect) -> Check:
    fail = _fail(dialect)

    def check(value: Any, old: Any, place: Place, step: str | int, out: Findings) -> Any:
        return value if type(value) is bool else fail(schema, value, place, step, out)

    return check


def _fail(dialect: Dialect) -> Callable[[Schema, Any, Place, str | int, Findings], Any]:
    return wrong_type if dialect is Dialect.CUSTOM else not_go


def string(schema: Schema, dialect: Dialect) -> Check:
    fail = _fail(dialect)
    rules = _string_rules(schema, dialect)

    def check(value: Any, old: Any, place: Place, step: str | int, out: Findings) -> Any:
        if type(value) is not str:
            return fail(schema, value, place, step, out)
        for rule in rules:
            if not rule(value, place, step, out):
                break
        return value

    return check


def int_or_string(schema: Schema, dialect: Dialect) -> Check:
    if schema.get("format") == "quantity" and dialect is Dialect.BUILT_IN:
        return _quantity
    fail = _fail(dialect)
    schema = {name: value for name, value in schema.items() if name != "format"}
    rules = _string_rules(schema, dialect)

    def check(value: Any, old: Any, place: Place, step: str | int, out: Findings) -> Any:
        if type(value) is str:
            for rule in rules:
                if not rule(value, place, step, out):
                    break
        elif type(value) is float and value.is_integer():
            return int(value)
        elif type(value) is not int:
            if type(value) is float and dialect is Dialect.CUSTOM:
                _out_of_range(schema, place, step, out)
            return fail(schema, value, place, step, out)
        return value

    return check


def _quantity(value: Any, old: Any, place: Place, step: str | int, out: Findings) -> Any:
    """Checks a quantity of a built-in kind and converts it to canonical form."""
    out.amounts += 1
    if out.amounts > AMOUNTS:
        out.causes.append(causes.too_many(render(place), out.amounts, AMOUNTS))
        raise Enough
    if type(value) not in (str, int, float):
        out.cannot_decode(_NO_QUANTITY)
        return value
    try:
        text = quantities.canonical(value)
    except quantities.QuantityError as error:
        out.cannot_decode(str(error))
        return value
    return value if text == value else text


def _string_rules(schema: Schema, dialect: Dialect) -> tuple[_Rule, ...]:
    rules: list[_Rule] = []
    if dialect is Dialect.CUSTOM:
        if "maxLength" in schema or "minLength" in schema:
            rules.append(_length(schema.get("minLength", 0), schema.get("maxLength")))
        if "pattern" in schema:
            rules.append(_pattern(schema["pattern"]))
    if schema.get("format") in ("date-time", "byte"):
        rules.append(_format(schema["format"], dialect))
    if "enum" in schema:
        unset = "default" in schema and dialect is Dialect.BUILT_IN  # an empty string will become the default
        rules.append(_enum(schema["enum"], ("",) if unset else ()))
    return tuple(rules)


def _length(least: int, most: int | None) -> _Rule:
    def rule(value: str, place: Place, step: str | int, out: Findings) -> bool:
        length = len(value)
        if most is not None and length > most:
            out.causes.append(causes.too_long(out.spot(place, step)[0], most))
            return False
        if length < least:
            field, name = out.spot(place, step)
            out.causes.append(causes.invalid(field, value, f"{name} in body should be at least {least} chars long"))
            return False
        return True

    return rule


def _pattern(pattern: str) -> _Rule:
    search = re.compile(_as_python(pattern)).search

    def rule(value: str, place: Place, step: str | int, out: Findings) -> bool:
        if search(value):
            return True
        field, name = out.spot(place, step)
        out.causes.append(causes.invalid(field, value, f"{name} in body should match '{pattern}'"))
        return False

    return rule


def _as_python(pattern: str) -> str:
    """Converts a Go pattern: Go's $ matches only at the very end, Python's also before a final newline."""
    return pattern[:-1] + r"\Z" if pattern.endswith("$") and not pattern.endswith(r"\$") else pattern


def _enum(allowed: list[Any], also: tuple[str, ...]) -> _Rule:
    known = frozenset((*allowed, *also))

    def rule(value: str, place: Place, step: str | int, out: Findings) -> bool:
        if value not in known:
            out.causes.append(causes.not_supported(out.spot(place, step)[0], value, allowed))
        return True

    return rule


def _format(format_: str, dialect: Dialect) -> _Rule:
    valid: Callable[[str], bool] = _is_time if format_ == "date-time" else (lambda text: not bad_base64(text))

    def custom(value: str, place: Place, step: str | int, out: Findings) -> bool:
        if not valid(value):
            field, name = out.spot(place, step)
            detail = f"{name} in body must be of type {format_}: {causes.quoted(value)}"
            out.causes.append(causes.wrong_type(field, value, detail))
        return True

    def built_in(value: str, place: Place, step: str | int, out: Findings) -> bool:
        problem = bad_time(value, step) if format_ == "date-time" else bad_base64(value)
        if problem:
            out.cannot_decode(problem)
        return True

    return custom if dialect is Dialect.CUSTOM else built_in


def _is_time(text: str) -> bool:
    """As permissive as the validator of a kube-apiserver, which checks the date by calendar and the time by its digits; but times
    that our own readers cannot parse are refused."""
    day, _, time = text.lower().partition("t")
    if not _DAY.fullmatch(day):
        return False
    try:
        date.fromisoformat(day)
    except ValueError:
        return False
    if not _TIME.fullmatch(time) or time[:2] > "23" or time[3:5] > "59" or time[6:8] > "59":
        return False
    return readable_time(text)


def number(schema: Schema, dialect: Dialect) -> Check:
    """Numbers with a fraction. Constraints are not implemented: no schema that we serve has any."""
    fail = _fail(dialect)

    def check(value: Any, old: Any, place: Place, step: str | int, out: Findings) -> Any:
        return value if type(value) in (int, float) else fail(schema, value, place, step, out)

    return check


def integer(schema: Schema, dialect: Dialect) -> Check:
    fail = _fail(dialect)
    least, most = _INT32 if schema.get("format") == "int32" else _INT64
    minimum, maximum = schema.get("minimum"), schema.get("maximum")
    custom = dialect is Dialect.CUSTOM

    def check(value: Any, old: Any, place: Place, step: str | int, out: Findings) -> Any:
        if custom and type(value) is float and value.is_integer():
            value = int(value)
        elif custom and type(value) is int and not _INT64[0] <= value <= _INT64[1]:
            value = 0.5  # treated as a float, as Go does with integers that overflow
        if type(value) is not int:
            if type(value) is float and custom:
                _out_of_range(schema, place, step, out)
            return fail(schema, value, place, step, out)
        if not least <= value <= most:
            if not custom:
                return fail(schema, value, place, step, out)
            _out_of_range(schema, place, step, out)
        if custom and minimum is not None and value < minimum:
            _beyond(value, "greater", minimum, place, step, out)
        if custom and maximum is not None and value > maximum:
            _beyond(value, "less", maximum, place, step, out)
        if "enum" in schema and value not in schema["enum"]:
            out.causes.append(causes.not_supported(out.spot(place, step)[0], value, schema["enum"]))
        return value

    return check


def _out_of_range(schema: Schema, place: Place, step: str | int, out: Findings) -> None:
    name = out.spot(place, step)[1]
    format_ = f"with format {schema['format']}" if "format" in schema else "(default format)"
    out.causes.append(causes.invalid("<nil>", "", f"Checked value must be of type integer {format_} in {name}"))


def _beyond(value: int, word: str, limit: Any, place: Place, step: str | int, out: Findings) -> None:
    field, name = out.spot(place, step)
    out.causes.append(causes.invalid(field, value, f"{name} in body should be {word} than or equal to {limit}"))
