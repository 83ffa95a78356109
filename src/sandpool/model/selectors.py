"""Label and field selectors: parses those in requests (text) and in objects (structs) as strictly as Kubernetes, and matches them fast.

Errors have Kubernetes' messages. `LabelSelector.matches` takes the labels of an object.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import islice
from typing import Annotated

import msgspec

from sandpool.model.fields import doc
from sandpool.model.metadata import Model
from sandpool.model.names import label_value, qualified_name

_TOKEN = re.compile(r"(?P<name>[^=!(),>< \t\r\n]+)|[=!]=|[=!(),><]")
_BINARY = ("in", "notin", "=", "==", "!=", ">", "<")
_FIELD_OPERATOR = re.compile("!=|==|=")
_UNTIL_COMMA = re.compile(r"(?:[^\\,]++|\\.?+)*+", re.DOTALL)
MOST_TERMS = 256
"""The most requirements of one label selector, or terms of one field selector: each is compared with each object, and parsing one takes
longer than a short request. A requirement `key in (...)` may name thousands of values."""
MOST_TOKENS = 20_000
"""The most names and operators in one label selector."""


class SelectorError(ValueError):
    """A selector that cannot be parsed; the message is Kubernetes' (400)."""


class Tokens:
    """Splits a selector into tokens: names, and operators such as `=` or `(`. The empty token marks the end."""

    def __init__(self, text: str) -> None:
        self._tokens = list(_split(text.partition("\0")[0]))
        self._at = 0

    def peek(self) -> str:
        return self._tokens[self._at][0]

    def is_name(self) -> bool:
        return self._tokens[self._at][1]

    def take(self) -> str:
        token = self._tokens[self._at][0]
        self._at = min(self._at + 1, len(self._tokens) - 1)
        return token


def quoted(text: str) -> str:
    return msgspec.json.encode(text).decode()


def _split(text: str) -> list[tuple[str, bool]]:
    every = islice(_TOKEN.finditer(text), MOST_TOKENS + 1)
    tokens = [(found[0], found.lastgroup == "name") for found in every]
    if len(tokens) > MOST_TOKENS:
        raise SelectorError(
            f"the label selector has more than {MOST_TOKENS} names and operators: select by fewer values"
        )
    tokens.append(("", False))
    return tokens


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
        for requirement in self.requirements:  # noqa: SIM110 - a generator would double the cost of fanning out watch events
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
    """A label selector in an object (metav1.LabelSelector)."""

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
    """Compiles a selector struct. An empty one matches everything."""
    requirements = [_requirement(key, Operator.EQUALS, [value]) for key, value in struct.match_labels.items()]
    for expression in struct.match_expressions:
        operator = _STRUCT_OPERATORS.get(expression.operator)
        if operator is None:
            raise SelectorError(f"{quoted(expression.operator)} is not a valid label selector operator")
        requirements.append(_requirement(expression.key, operator, expression.values))
    return _sorted(requirements)


def parse_labels(text: str) -> LabelSelector:
    """Parses text such as `a=b, c!=d, e in (f,g), h notin (i), j, !k, n>1`."""
    if not text:
        return EVERYTHING
    tokens = Tokens(text)
    requirements: list[Requirement] = []
    while tokens.peek() != "":
        if not (tokens.is_name() or tokens.peek() == "!"):
            raise SelectorError(f"found '{tokens.peek()}', expected: !, identifier, or 'end of string'")
        try:
            requirements.append(_parse_requirement(tokens))
        except SelectorError as error:
            raise SelectorError(f"unable to parse requirement: {error}") from None
        _check_length("label", len(requirements))
        mark = tokens.take()
        if mark == "":
            break
        if mark != ",":
            raise SelectorError(f"found '{mark}', expected: ',' or 'end of string'")
        if not (tokens.is_name() or tokens.peek() == "!"):
            raise SelectorError(f"found '{tokens.peek()}', expected: identifier after ','")
    return _sorted(requirements)


def _parse_requirement(tokens: Tokens) -> Requirement:
    negated = tokens.peek() == "!"
    if negated:
        tokens.take()
    if not tokens.is_name():
        raise SelectorError(f"found '{tokens.take()}', expected: identifier")
    key = tokens.take()
    wrong = qualified_name(key)
    if wrong:
        raise SelectorError(f"<nil>: Invalid value: {quoted(key)}: {'; '.join(wrong)}")
    if negated:
        return _requirement(key, Operator.ABSENT, ())
    if tokens.peek() in ("", ","):
        return _requirement(key, Operator.EXISTS, ())
    mark = tokens.take()
    operator = _OPERATORS.get(mark)
    if operator is None:
        raise SelectorError(f"found '{mark}', expected: in, notin, =, ==, !=, gt, lt")
    values = _parse_set(tokens) if operator in (Operator.IN, Operator.NOT_IN) else _parse_value(tokens)
    return _requirement(key, operator, sorted(values))


def _parse_set(tokens: Tokens) -> set[str]:
    if tokens.peek() != "(":
        raise SelectorError(f"found '{tokens.take()}' expected: '('")
    tokens.take()
    if tokens.peek() != ")" and tokens.peek() != "," and not tokens.is_name():
        raise SelectorError(f"found '{tokens.peek()}', expected: ',', ')' or identifier")
    values: set[str] = set()
    expected = True  # whether a value may come here; a missing one is the empty value
    while True:
        if tokens.is_name():
            values.add(tokens.take())
            if tokens.peek() not in (",", ")"):
                raise SelectorError(f"found '{tokens.peek()}', expected: ',' or ')'")
            expected = False
        elif tokens.peek() == ",":
            tokens.take()
            if expected:
                values.add("")
            expected = True
        elif tokens.peek() == ")":
            tokens.take()
            return values | {""} if expected else values
        else:
            raise SelectorError(f"found '{tokens.peek()}', expected: ',', or identifier")


def _parse_value(tokens: Tokens) -> set[str]:
    if tokens.peek() in ("", ","):
        return {""}
    if not tokens.is_name():
        raise SelectorError(f"found '{tokens.peek()}', expected: identifier")
    return {tokens.take()}


def _requirement(key: str, operator: Operator, values: Sequence[str]) -> Requirement:
    """Validates like Go's labels.NewRequirement, with the same messages."""
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


@dataclass(frozen=True, slots=True)
class Term:
    field: str
    value: str
    equal: bool = True

    def __str__(self) -> str:
        return f"{self.field}{'=' if self.equal else '!='}{escape(self.value)}"


@dataclass(frozen=True, slots=True)
class FieldSelector:
    """All terms must hold; without any, everything matches."""

    terms: tuple[Term, ...] = ()

    def matches(self, values: Mapping[str, str]) -> bool:
        """Whether all terms match. `values` has the text of each field that they name; an absent field counts as empty."""
        return all((values.get(term.field, "") == term.value) is term.equal for term in self.terms)

    def __bool__(self) -> bool:
        """Whether it can exclude anything."""
        return bool(self.terms)

    def __str__(self) -> str:
        return ",".join(map(str, self.terms))


def parse_fields(text: str) -> FieldSelector:
    parts = [part for part in _split_terms(text) if part]
    _check_length("field", len(parts))
    terms = (_term(part, text) for part in sorted(parts))
    return FieldSelector(tuple(term for term in terms if term.field or term.value))


def escape(value: str) -> str:
    return value.replace("\\", "\\\\").replace(",", "\\,").replace("=", "\\=")


def _term(part: str, text: str) -> Term:
    found = _FIELD_OPERATOR.search(part)
    if found is None:
        raise SelectorError(f"invalid selector: '{text}'; can't understand '{part}'")
    return Term(part[: found.start()], _unescape(part[found.end() :]), found[0] != "!=")


def _check_length(kind: str, terms: int) -> None:
    if terms > MOST_TERMS:
        raise SelectorError(
            f"the {kind} selector has {terms} requirements or more, at most {MOST_TERMS} are taken: "
            "use `key in (...)`, which may name thousands of values"
        )


def _split_terms(text: str) -> Iterator[str]:
    """Splits at commas that are not escaped by a backslash."""
    at = 0
    while (found := _UNTIL_COMMA.match(text, at)) is not None:
        yield found[0]
        at = found.end() + 1
        if at > len(text):
            return


def _unescape(value: str) -> str:
    if not any(mark in value for mark in "\\,="):
        return value
    out: list[str] = []
    protected = False
    for mark in value:
        if protected:
            if mark not in "\\,=":
                raise SelectorError(f"invalid field selector: invalid escape sequence: \\{mark}")
            out.append(mark)
            protected = False
        elif mark == "\\":
            protected = True
        elif mark in ",=":
            raise SelectorError(f"invalid field selector: unescaped character in value: {ord(mark)}")
        else:
            out.append(mark)
    if protected:
        raise SelectorError("invalid field selector: invalid escape sequence: \\")
    return "".join(out)
