"""The table of weaknesses is complete, and every test that it names exists."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import pytest

from unit.controllers.weaknesses import IDS, WEAKNESSES, Later, NotHere, Shown

TESTS = Path(__file__).parents[2]


@cache
def functions_of(file: str) -> frozenset[str]:
    tree = ast.parse((TESTS / file).read_text())
    return frozenset(node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


def test_every_weakness_is_there() -> None:
    assert list(WEAKNESSES) == IDS


@pytest.mark.parametrize("weakness", WEAKNESSES)
def test_each_has_a_test_that_exists_or_a_reason(weakness: str) -> None:
    match WEAKNESSES[weakness]:
        case Shown(tests, _):
            assert tests
            assert [(file, name) for file, name in tests if f"test_{name}" not in functions_of(file)] == []
        case NotHere(because):
            assert len(because) > 10
        case Later(part, because):
            assert part
            assert len(because) > 10
