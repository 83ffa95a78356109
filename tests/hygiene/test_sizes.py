"""Files and functions stay small enough to hold one idea."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src" / "sandpool"
FOLDERS = sorted({path.parent for path in SOURCE.rglob("*.py")})
MOST_LINES_OF_A_FILE = 400
MOST_LINES_OF_A_FUNCTION = 60
NAMES_THAT_SAY_NOTHING = frozenset({"utils", "util", "helpers", "common", "misc"})


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: str(folder.relative_to(SOURCE.parent)))
def test_every_module_is_small_and_says_what_it_is_for(folder: Path) -> None:
    assert [f"{path.name}: {wrong}" for path in sorted(folder.glob("*.py")) for wrong in wrongs(path)] == []


def wrongs(path: Path) -> Iterator[str]:
    text = path.read_text()
    if text.count("\n") > MOST_LINES_OF_A_FILE:
        yield f"it has {text.count(chr(10))} lines"
    tree = ast.parse(text)
    if not ast.get_docstring(tree):
        yield "it has no docstring"
    if path.stem in NAMES_THAT_SAY_NOTHING:
        yield "its name says nothing"
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = (node.end_lineno or node.lineno) - node.lineno + 1
            if length > MOST_LINES_OF_A_FUNCTION:
                yield f"{node.name} has {length} lines"
