"""The map of cases is complete, and every test that it names exists."""

from __future__ import annotations

import ast

import pytest

from unit.controllers.sandbox.cases import CASES, FILES, Differs

NAMED = [entry.test if isinstance(entry, Differs) else entry for entry in CASES.values()]


def test_every_case_is_there() -> None:
    assert list(CASES) == list(range(1, 124))


def test_every_difference_has_its_reason() -> None:
    for entry in CASES.values():
        assert not isinstance(entry, Differs) or len(entry.reason) > 10


@pytest.mark.parametrize("file", FILES)
def test_every_named_test_exists(file: str) -> None:
    tree = ast.parse(FILES[file].read_text())
    functions = {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
    wanted = {f"test_{name.partition('.')[2]}" for name in NAMED if name.partition(".")[0] == file}
    assert wanted - functions == set()


def test_every_name_says_its_file() -> None:
    assert {name.partition(".")[0] for name in NAMED if name} <= set(FILES)
