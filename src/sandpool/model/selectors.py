"""Label selectors: the text form of requests and the struct form of objects, parsed strictly, matched fast.

Errors carry Kubernetes' words. `LabelSelector.matches` takes the labels of an object. Field selectors are in
field_selectors.py and can be had from here too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated

import msgspec

from sandpool.model.field_selectors import FieldSelector, parse_fields
from sandpool.model.fields import doc
from sandpool.model.metadata import Model
from sandpool.model.names import label_value, qualified_name
from sandpool.model.selector_text import SelectorError, Words, quoted

__all__ = [
    "EVERYTHING",
    "FieldSelector",
    "LabelSelector",
    "LabelSelectorStruct",
    "Operator",
    "Requirement",
    "SelectorError",
    "from_struct",
    "parse_fields",
    "parse_labels",
]


class Operator(StrEnum):
    IN = "in"
    NOT_IN = "notin"
    EQUALS = "="
    DOUBLE_EQUALS = "=="
    NOT_EQUALS = "!="
    GREATER = "gt"
    LESS = "lt"
    EXISTS = "exists"
    ABSENT = "!"


_BINARY = ("in", "notin", "=", "==", "!=", ">", "<")
_OPERATORS = dict(zip(_BINARY, list(Operator)[:7], strict=True))
_POSITIVE = frozenset({Operator.IN, Operator.EQUALS, Operator.DOUBLE_EQUALS})
_NEGATIVE = frozenset({Operator.NOT_IN, Operator.NOT_EQUALS})


@dataclass(frozen=True, slots=True)
class Requirement:
    key: str
    operator: Operator
    values: frozenset[str] = frozenset()

    def matches(self, labels: Mapping[str, str]) -> bool:
        value = labels.get(self.key)
        if self.operator in _POSITIVE:
            return value is not None and value in self.values
        if self.operator in _NEGATIVE:
            return value is None or value not in self.values
        if self.operator is Operator.EXISTS:
            return value is not None
        if self.operator is Operator.ABSENT:
            return value is None
        return self._compares(value)

    def _compares(self, value: str | None) -> bool:
        number = _integer(value) if value is not None else None
        bound = _integer(next(iter(self.values)))
        if number is None or bound is None:
            return False
        return number > bound if self.operator is Operator.GREATER else number < bound

    def __str__(self) -> str:
        values = ",".join(sorted(self.values))
        match self.operator:
            case Operator.EXISTS:
                return self.key
            case Operator.ABSENT:
                return f"!{self.key}"
            case Operator.IN | Operator.NOT_IN:
                return f"{self.key} {self.operator} ({values})"
            case Operator.GREATER:
                return f"{self.key}>{values}"
            case Operator.LESS:
                return f"{self.key}<{values}"
        return f"{self.key}{self.operator}{values}"


@dataclass(frozen=True, slots=True)
class LabelSelector:
    """All requirements must hold; without any, everything matches."""

    requirements: tuple[Requirement, ...] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        for requirement in self.requirements:  # noqa: SIM110 - a generator would double the cost of a fan-out
            if not requirement.matches(labels):
                return False
        return True

    def __bool__(self) -> bool:
        """Whether it can exclude anything."""
        return bool(self.requirements)

    def __str__(self) -> str:
        return ",".join(map(str, self.requirements))


EVERYTHING = LabelSelector()


class SelectorRequirement(Model, frozen=True):
    key: Annotated[str, doc("The label that is looked at.")]
    operator: Annotated[str, doc("In, NotIn, Exists or DoesNotExist.")]
    values: Annotated[tuple[str, ...], doc("What the label's value is compared with.")] = ()


class LabelSelectorStruct(Model, frozen=True):
    """A label selector as it stands in objects (metav1.LabelSelector)."""

    match_labels: Annotated[dict[str, str], doc("Labels that must have these values.")] = msgspec.field(
        default_factory=dict
    )
    match_expressions: Annotated[tuple[SelectorRequirement, ...], doc("Further requirements; all must hold.")] = ()


_STRUCT_OPERATORS = {
    "In": Operator.IN,
    "NotIn": Operator.NOT_IN,
    "Exists": Operator.EXISTS,
    "DoesNotExist": Operator.ABSENT,
}


def from_struct(struct: LabelSelectorStruct) -> LabelSelector:
    """An empty struct matches everything."""
    requirements = [_requirement(key, Operator.EQUALS, [value]) for key, value in struct.match_labels.items()]
    for expression in struct.match_expressions:
        operator = _STRUCT_OPERATORS.get(expression.operator)
        if operator is None:
            raise SelectorError(f"{quoted(expression.operator)} is not a valid label selector operator")
        requirements.append(_requirement(expression.key, operator, expression.values))
    return _sorted(requirements)


def parse_labels(text: str) -> LabelSelector:
    """`a=b, c!=d, e in (f,g), h notin (i), j, !k, n>1`."""
    if not text:
        return EVERYTHING
    words = Words(text)
    requirements: list[Requirement] = []
    while words.peek() != "":
        if not (words.is_name() or words.peek() == "!"):
            raise SelectorError(f"found '{words.peek()}', expected: !, identifier, or 'end of string'")
        try:
            requirements.append(_parse_requirement(words))
        except SelectorError as error:
            raise SelectorError(f"unable to parse requirement: {error}") from None
        mark = words.take()
        if mark == "":
            break
        if mark != ",":
            raise SelectorError(f"found '{mark}', expected: ',' or 'end of string'")
        if not (words.is_name() or words.peek() == "!"):
            raise SelectorError(f"found '{words.peek()}', expected: identifier after ','")
    return _sorted(requirements)


def _parse_requirement(words: Words) -> Requirement:
    negated = words.peek() == "!"
    if negated:
        words.take()
    if not words.is_name():
        raise SelectorError(f"found '{words.take()}', expected: identifier")
    key = words.take()
    wrong = qualified_name(key)
    if wrong:
        raise SelectorError(f"<nil>: Invalid value: {quoted(key)}: {'; '.join(wrong)}")
    if negated:
        return _requirement(key, Operator.ABSENT, ())
    if words.peek() in ("", ","):
        return _requirement(key, Operator.EXISTS, ())
    mark = words.take()
    operator = _OPERATORS.get(mark)
    if operator is None:
        raise SelectorError(f"found '{mark}', expected: in, notin, =, ==, !=, gt, lt")
    values = _parse_set(words) if operator in (Operator.IN, Operator.NOT_IN) else _parse_value(words)
    return _requirement(key, operator, sorted(values))


def _parse_set(words: Words) -> set[str]:
    if words.peek() != "(":
        raise SelectorError(f"found '{words.take()}' expected: '('")
    words.take()
    if words.peek() != ")" and words.peek() != "," and not words.is_name():
        raise SelectorError(f"found '{words.peek()}', expected: ',', ')' or identifier")
    values: set[str] = set()
    expected = True  # a value may come here; if none does, it is the empty one
    while True:
        if words.is_name():
            values.add(words.take())
            if words.peek() not in (",", ")"):
                raise SelectorError(f"found '{words.peek()}', expected: ',' or ')'")
            expected = False
        elif words.peek() == ",":
            words.take()
            if expected:
                values.add("")
            expected = True
        elif words.peek() == ")":
            words.take()
            return values | {""} if expected else values
        else:
            raise SelectorError(f"found '{words.peek()}', expected: ',', or identifier")


def _parse_value(words: Words) -> set[str]:
    if words.peek() in ("", ","):
        return {""}
    if not words.is_name():
        raise SelectorError(f"found '{words.peek()}', expected: identifier")
    return {words.take()}


def _requirement(key: str, operator: Operator, values: Sequence[str]) -> Requirement:
    """Checks what NewRequirement checks, and says it as it does."""
    wrong = [f"key: Invalid value: {quoted(key)}: {'; '.join(found)}" for found in [qualified_name(key)] if found]
    if operator in (Operator.IN, Operator.NOT_IN) and not values:
        wrong.append("values: Invalid value: []: for 'in', 'notin' operators, values set can't be empty")
    if operator in (Operator.EXISTS, Operator.ABSENT) and values:
        given = "[" + ",".join(quoted(value) for value in values) + "]"
        wrong.append(f"values: Invalid value: {given}: values set must be empty for exists and does not exist")
    for index, value in enumerate(values):
        if operator in (Operator.GREATER, Operator.LESS) and _integer(value) is None:
            says = "for 'Gt', 'Lt' operators, the value must be an integer"
            wrong.append(f"values[{index}]: Invalid value: {quoted(value)}: {says}")
        found = label_value(value)
        if found:
            wrong.append(f"values[{index}][{key}]: Invalid value: {quoted(value)}: {'; '.join(found)}")
    if wrong:
        raise SelectorError(wrong[0] if len(wrong) == 1 else f"[{', '.join(wrong)}]")
    return Requirement(key, operator, frozenset(values))


def _integer(text: str) -> int | None:
    digits = text[1:] if text[:1] in ("+", "-") else text
    if not (digits.isascii() and digits.isdigit()) or len(digits) > 19:
        return None
    number = int(text)
    return number if -(2**63) <= number < 2**63 else None


def _sorted(requirements: list[Requirement]) -> LabelSelector:
    return LabelSelector(tuple(sorted(requirements, key=lambda requirement: requirement.key)))
