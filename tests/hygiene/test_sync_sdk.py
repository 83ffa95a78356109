"""The synchronous SDK is what its source says, and the package exports what it promises."""

from __future__ import annotations

import ast
import inspect
import subprocess
import sys
from pathlib import Path

import pytest

import sandpool

ROOT = Path(__file__).parents[2]


def test_the_synchronous_half_is_generated() -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "tools" / "unasync.py"), "--check"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_both_transports_offer_the_same() -> None:
    def names(half: str) -> dict[str, list[str]]:
        tree = ast.parse((ROOT / "src/sandpool/sdk" / half / "transport.py").read_text())
        (transport,) = [n for n in tree.body if isinstance(n, ast.ClassDef) and n.name == "Transport"]
        functions = [n for n in transport.body if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)]
        return {n.name: [a.arg for a in n.args.args] for n in functions if not n.name.startswith("_")}

    assert names("_async") == names("_sync")


def test_every_exported_name_is_there() -> None:
    for name in sandpool.__all__:
        assert getattr(sandpool, name) is not None
    assert sorted(sandpool.__all__) == sandpool.__all__
    with pytest.raises(AttributeError, match="Sandpit"):
        _ = sandpool.Sandpit


def test_type_checkers_see_the_same_names() -> None:
    tree = ast.parse((ROOT / "src/sandpool/__init__.py").read_text())
    (checked,) = [node for node in tree.body if isinstance(node, ast.If)]
    imported = {alias.name for node in checked.body if isinstance(node, ast.ImportFrom) for alias in node.names}
    assert imported | {"__version__"} == set(sandpool.__all__)


@pytest.mark.parametrize("half", ["Sandbox", "Connection"])
def test_both_halves_have_the_same_surface(half: str) -> None:
    blocking, waiting = getattr(sandpool, half), getattr(sandpool, f"Async{half}")
    public = {name for name in dir(waiting) if not name.startswith("_")}
    assert public == {name for name in dir(blocking) if not name.startswith("_")}
    for name in public:
        found = getattr(waiting, name)
        if inspect.isroutine(found):
            assert found.__doc__, f"{half}.{name} says nothing about itself"
            expected = list(inspect.signature(found).parameters)
            assert list(inspect.signature(getattr(blocking, name)).parameters) == expected
