"""The conditions of `sandpool wait --for`, as predicates on an object. Pure; None stands for an object that does not exist."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Protocol

from sandpool.cli.exits import USAGE, Exit
from sandpool.cli.output.jsonpath import as_text, find
from sandpool.model.jsonpath import JsonPathError

Json = dict[str, Any]
_BRACED = re.compile(r"""(?P<quote>['"]?)(?P<path>\{.*\})(?P=quote)(?:=(?P<value>.*))?""")
EXAMPLES = "condition=Ready, condition=Ready=False, delete, create or jsonpath='{.status.readyReplicas}'=3"


class Awaited(Protocol):
    def met(self, body: Json | None) -> bool: ...

    def __str__(self) -> str:
        """As in "not … after 30 s"."""
        ...


@dataclass(frozen=True, slots=True)
class Condition:
    type: str
    status: str = "true"

    def met(self, body: Json | None) -> bool:
        """As kubectl: a condition of an older generation than the object does not count."""
        if body is None:
            return False
        generation = body["metadata"].get("generation", 0)
        for one in condition_list(body):
            if str(one.get("type", "")).lower() == self.type.lower():
                observed = one.get("observedGeneration") or generation
                return observed >= generation and str(one.get("status", "")).lower() == self.status.lower()
        return False

    def __str__(self) -> str:
        return f"{self.type} {self.status.capitalize()}"


@dataclass(frozen=True, slots=True)
class Gone:
    def met(self, body: Json | None) -> bool:
        return body is None

    def __str__(self) -> str:
        return "gone"


@dataclass(frozen=True, slots=True)
class There:
    def met(self, body: Json | None) -> bool:
        return body is not None

    def __str__(self) -> str:
        return "there"


@dataclass(frozen=True, slots=True)
class Value:
    path: str
    wanted: str | None  # None: any value that is not empty

    def met(self, body: Json | None) -> bool:
        found = [as_text(value) for value in find(self.path, body)] if body is not None else []
        return any(found) if self.wanted is None else self.wanted in found

    def __str__(self) -> str:
        return f"{self.path} {'set' if self.wanted is None else self.wanted}"


def condition_list(body: Json) -> list[Json]:
    found: list[Json] = (body.get("status") or {}).get("conditions") or []
    return found


def awaited(text: str) -> Awaited:
    """`condition=Ready`, `delete`, `create`, `jsonpath={.a}=b`."""
    word, _, rest = text.partition("=")
    if word == "condition" and rest:
        type_, _, status = rest.partition("=")
        return Condition(type_, status or "true")
    if text in ("delete", "create"):
        return Gone() if text == "delete" else There()
    if word == "jsonpath" and rest:
        return _value(text, rest)
    raise Exit(USAGE, f"--for {text!r} cannot be waited for; write {EXAMPLES}")


def _value(text: str, rest: str) -> Value:
    braced = _BRACED.fullmatch(rest)
    if braced is not None:
        path, wanted = braced["path"], braced["value"]
    else:
        path, sign, wanted = rest.rpartition("=") if "==" not in rest else ("", "", rest)
        path, wanted = (path, wanted) if sign else (rest, None)
    try:
        find(path, {})
    except JsonPathError as error:
        raise Exit(USAGE, f"--for {text}: {error}; write {EXAMPLES}") from None
    return Value(path, None if wanted is None else wanted.strip("'\""))
