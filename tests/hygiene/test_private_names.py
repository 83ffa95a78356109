"""Tests use what others may use: no name with a leading underscore of anything but the object itself, neither read nor replaced."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
PUBLIC_ALL_THE_SAME = {"_exit", "_replace"}
"""Of `os` and of named tuples: documented, with an underscore for other reasons."""
EXCEPTIONS = {
    "tests/support/clocks/pausing_loop.py": "an event loop that holds back handles of asyncio's own",
    "tests/support/clocks/virtual_loop.py": "as the loop of asyncio that it stands for",
    "tests/support/product/declared_metrics.py": "the metrics library has no public way to ask for labels",
    "tests/support/upstream/agent_sandbox_sdk.py": "another project's library leaves files open",
    "tests/support/storage/vfs.py": "finds the SQLite that Python itself has loaded",
}
DEFAULTS = {"__defaults__", "__kwdefaults__"}
"""Whoever replaces these wants an argument."""

WORTH_A_LOOK = re.compile(
    r"(?<!self)(?<!cls)[\w\])]\._[a-zA-Z]|(?m:^ *(from|import) .*\b_[a-zA-Z]|^ +_\w+,$)|[\"'.]_[a-zA-Z]\w*[\"']|defaults__"
)
"""Most files are not: taking them all apart takes seconds."""


def test_tests_leave_private_names_alone() -> None:
    paths = sorted(path for folder in ("tests", "bench") for path in (ROOT / folder).rglob("*.py"))
    found = {str(path.relative_to(ROOT)): list(private_names(path)) for path in paths}
    assert {path: names for path, names in found.items() if names and path not in EXCEPTIONS} == {}
    assert [path for path in EXCEPTIONS if not found.get(path)] == [], "they need no exception"


def private_names(path: Path) -> Iterator[str]:
    text = path.read_text()
    if not WORTH_A_LOOK.search(text):
        return
    for node in ast.walk(ast.parse(text)):
        match node:
            case (
                ast.Attribute(value=ast.Name(id="self" | "cls"))
                | ast.Attribute(value=ast.Call(func=ast.Name(id="super")))
            ):
                pass
            case ast.Attribute(attr=name) if private(name):
                yield f"line {node.lineno}: {ast.unparse(node)}"
            case ast.Import(names=names) | ast.ImportFrom(names=names):
                yield from (f"line {node.lineno}: {each.name}" for each in names if private(each.name))
            case ast.Call(args=arguments) if replaces(node):
                texts = [
                    each.value for each in arguments if isinstance(each, ast.Constant) and isinstance(each.value, str)
                ]
                yield from (f"line {node.lineno}: {text}" for text in texts if private(text.rpartition(".")[2]))
            case _:
                pass


def private(name: str) -> bool:
    if name in DEFAULTS:
        return True
    return name.startswith("_") and not name.endswith("__") and name not in PUBLIC_ALL_THE_SAME


def replaces(call: ast.Call) -> bool:
    """`setattr` of whomever, and functions that are given a `monkeypatch`."""
    called = ast.unparse(call.func).rpartition(".")[2]
    given = call.args[0] if call.args else None
    return called in {"getattr", "setattr", "delattr"} or (isinstance(given, ast.Name) and given.id == "monkeypatch")
