"""Every class that the SDK raises can be imported from `sandpool` and stands in the tree of the reference page."""

from __future__ import annotations

import ast
import importlib
import pkgutil
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import sandpool
import sandpool.sdk
from sandpool.cli.error_messages import in_flags

ROOT = Path(__file__).parents[2]
INNER = {"RefusedUpgrade"}
"""Raised by one part of the SDK for another, which turns it into something else."""
ARGUMENT = re.compile(r"\bwith [a-z_]+=(?!\w)|Config\(|Sandbox\.[a-z]+\(")
FLAG = re.compile(r"(?<![\w`-])--[a-z]")


def raised() -> dict[str, type[Exception]]:
    """All errors of ours that are defined where the SDK is, or where it asks servers."""
    for module in pkgutil.walk_packages(sandpool.sdk.__path__, "sandpool.sdk."):
        importlib.import_module(module.name)
    found: dict[str, type[Exception]] = {}
    left: list[type[Exception]] = [sandpool.SandpoolError]
    while left:
        kind = left.pop()
        left += kind.__subclasses__()
        if kind is sandpool.SandpoolError or kind.__module__.startswith(("sandpool.sdk.", "sandpool.kube.")):
            assert found.setdefault(kind.__name__, kind) is kind or kind.__name__ in INNER, "two of one name"
    return {name: kind for name, kind in found.items() if name not in INNER}


def test_every_error_can_be_imported() -> None:
    for name, kind in raised().items():
        assert name in sandpool.__all__, f"{name} is raised and not exported"
        assert getattr(sandpool, name) is kind
        assert kind.__doc__, f"{name} does not say when it is raised"


def test_every_error_is_drawn_in_one_tree() -> None:
    page = (ROOT / "docs/reference/sdk.md").read_text()
    (tree,) = re.findall(r"^```text\nSandpoolError\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    drawn: dict[str, str] = {}
    path = ["SandpoolError"]
    for line in tree.splitlines():
        bars, name = re.fullmatch(r"((?:│   |    )*)[├└]── (\w+)(?: \([\w, ]+\))?", line).groups()  # type: ignore[union-attr]
        depth = len(bars) // 4 + 1
        assert name not in drawn
        drawn[name] = path[depth - 1]
        path[depth:] = [name]
    assert drawn.keys() | {"SandpoolError"} == raised().keys()
    for name, above in drawn.items():
        assert issubclass(getattr(sandpool, name), getattr(sandpool, above))


def texts(*folders: str) -> Iterator[tuple[str, str]]:
    """What is said in code, without docstrings: the file, and the text with `{}` for what is put in."""
    for path in (path for folder in folders for path in sorted((ROOT / "src/sandpool" / folder).rglob("*.py"))):
        tree = ast.parse(path.read_text())
        inside = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in ast.walk(node)}
        alone = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        for node in ast.walk(tree):
            if isinstance(node, ast.JoinedStr):
                parts = (one.value if isinstance(one, ast.Constant) else "{}" for one in node.values)
                yield str(path), "".join(map(str, parts))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str) and not {id(node)} & (inside | alone):
                yield str(path), node.value


def test_the_sdk_speaks_of_arguments() -> None:
    """A command that it quotes has its flags between backquotes."""
    for path, text in texts("sdk", "kube"):
        assert not FLAG.search(re.sub(r"`[^`]*`", "", text)), f"{path}: {text}"


def test_the_command_line_speaks_of_flags() -> None:
    for path, text in texts("cli"):
        assert not ARGUMENT.search(text) or path.endswith("failures.py"), f"{path}: {text}"


def test_every_advice_about_an_argument_is_known_to_the_command_line() -> None:
    advice = [text.replace("{}", "'x'") for _, text in texts("sdk", "kube") if ARGUMENT.search(text)]
    assert len(advice) >= 5
    for text in advice:
        assert not ARGUMENT.search(in_flags(text)), text


@pytest.mark.parametrize("name", ["CommandNotFound", "ClaimTimeout", "TimedOut", "FileNotFound"])
def test_pythons_own_classes_catch_them_too(name: str) -> None:
    assert issubclass(getattr(sandpool, name), OSError)
