"""The reference page of Events lists all of them, and nobody emits one that is not declared."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sandpool.model.event_reasons import EventReason, table
from sandpool.model.kinds import OURS
from sandpool.model.reasons import Reason

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/reference/events.md"
CONTROLLERS = ROOT / "src/sandpool/controllers"
SOURCES = {path: path.read_text() for path in sorted(CONTROLLERS.rglob("*.py"))}
SAYS_WHY = {"emit": 3, "ClaimEvent": 0, "PoolEvent": 0, "SandboxEvent": 0, "Refuse": 0, "Refusal": 0}
"""Calls that make an Event, or whose reason becomes the reason of one; and where the reason stands at the earliest."""


def calls(tree: ast.AST) -> Iterator[tuple[str, ast.Call]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            func = node.func
            name = func.attr if isinstance(func, ast.Attribute) else func.id if isinstance(func, ast.Name) else ""
            if name in SAYS_WHY:
                yield name, node


def test_the_page_has_every_event() -> None:
    assert table() in PAGE.read_text(), (
        "docs/reference/events.md: replace the table by what event_reasons.table() returns"
    )


def test_every_event_is_about_a_kind_of_ours_and_says_what_to_do() -> None:
    kinds = {resource.kind for resource in OURS}
    for reason in EventReason:
        assert set(reason.about) <= kinds, reason
        assert reason.meaning.endswith("."), reason
        assert reason.next_step.endswith("."), reason


def test_every_event_is_emitted_by_somebody() -> None:
    text = "\n".join(SOURCES.values())
    unused = [one for one in EventReason if not re.search(rf"\b(Event)?Reason\.{one.name}\b", text)]
    assert unused == []


def test_every_reason_that_becomes_an_event_is_declared() -> None:
    declared = {reason.value for reason in EventReason}
    seen: set[Any] = set()
    for path, text in SOURCES.items():
        for name, call in calls(ast.parse(text)):
            for argument in call.args[SAYS_WHY[name] :]:
                if isinstance(argument, ast.Attribute) and isinstance(argument.value, ast.Name):
                    word = {"Reason": Reason, "EventReason": EventReason}.get(argument.value.id)
                    if word is not None:
                        seen.add(word[argument.attr].value)
                        assert word[argument.attr].value in declared, f"{path}:{call.lineno} {name}({argument.attr})"
    assert {"SandboxAdopted", "WarmPoolNotFound"} <= seen


def test_no_reason_is_written_by_hand() -> None:
    for path, text in SOURCES.items():
        for name, call in calls(ast.parse(text)):
            for argument in call.args[SAYS_WHY[name] :]:
                written = isinstance(argument, ast.Constant) and re.fullmatch(r"([A-Z][a-z]+){2,}", str(argument.value))
                assert not written, f"{path}:{call.lineno}: {ast.unparse(argument)} is to be a member of EventReason"
