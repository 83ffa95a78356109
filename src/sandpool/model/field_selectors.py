"""Field selectors: `metadata.name=a,status.phase!=Running`, parsed as Kubernetes does, backslashes included."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from sandpool.model.selector_text import SelectorError

_OPERATORS = ("!=", "==", "=")  # in the order in which they are looked for


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
        """Takes the text of each field that the terms name; an absent field counts as empty."""
        return all((values.get(term.field, "") == term.value) is term.equal for term in self.terms)

    def exactly(self, field: str) -> str | None:
        """The value that the field must have, if the selector says so."""
        return next((term.value for term in self.terms if term.equal and term.field == field), None)

    def __bool__(self) -> bool:
        """Whether it can exclude anything."""
        return bool(self.terms)

    def __str__(self) -> str:
        return ",".join(map(str, self.terms))


def parse_fields(text: str) -> FieldSelector:
    terms = (_term(part, text) for part in sorted(_split(text)) if part)
    return FieldSelector(tuple(term for term in terms if term.field or term.value))


def escape(value: str) -> str:
    return value.replace("\\", "\\\\").replace(",", "\\,").replace("=", "\\=")


def _term(part: str, text: str) -> Term:
    for at in range(len(part)):
        for operator in _OPERATORS:
            if part.startswith(operator, at):
                return Term(part[:at], _unescape(part[at + len(operator) :]), operator != "!=")
    raise SelectorError(f"invalid selector: '{text}'; can't understand '{part}'")


def _split(text: str) -> Iterator[str]:
    """At commas, unless a backslash protects them."""
    start, protected = 0, False
    for at, mark in enumerate(text):
        if protected:
            protected = False
        elif mark == "\\":
            protected = True
        elif mark == ",":
            yield text[start:at]
            start = at + 1
    yield text[start:]


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
