"""The maps of cases are complete, and every test that they name exists."""

from __future__ import annotations

import ast

import pytest

from unit.controllers.pool.cases import CASES, FILES, WEAKNESSES, Differs

NAMED = [entry.test if isinstance(entry, Differs) else entry for entry in (*CASES.values(), *WEAKNESSES.values())]


def test_every_case_is_there() -> None:
    assert list(CASES) == [f"P-{n:02d}" for n in range(1, 89)] + [f"X-{n:02d}" for n in range(1, 12)]


def test_every_weakness_is_there() -> None:
    assert {name.split()[0] for name in WEAKNESSES} == {
        "L3",
        "L5",
        "L6",
        "L11",
        "S1",
        "S2",
        "S4",
        "S11",
        "S15",
        "O1",
        "O4",
    }


def test_every_difference_has_its_reason() -> None:
    assert all(len(entry.reason) > 20 for entry in CASES.values() if isinstance(entry, Differs))


@pytest.mark.parametrize("file", FILES)
def test_every_named_test_exists(file: str) -> None:
    tree = ast.parse(FILES[file].read_text())
    functions = {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
    wanted = {f"test_{name.partition('.')[2]}" for name in NAMED if name.partition(".")[0] == file}
    assert wanted - functions == set()


def test_every_name_says_its_file() -> None:
    assert {name.partition(".")[0] for name in NAMED if name} <= set(FILES)
