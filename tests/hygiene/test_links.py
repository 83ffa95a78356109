"""No call of the node follows a link that somebody else may have put in a name's place."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src" / "sandpool"
FILES = sorted(path for room in ("node", "controlplane", "boxd") for path in (SOURCE / room).rglob("*.py"))
FOLLOWING = frozenset({"chmod", "chown", "utime", "link", "access", "stat"})
NEVER = frozenset(
    {"chmod"}
)  # with an open folder it follows links whatever it is told: Linux had no other way for long


def followed(text: str) -> list[str]:
    """Calls that name something in an open folder, and go where a link of that name leads."""
    found = []
    for node in ast.walk(ast.parse(text)):
        match node:
            case ast.Call(func=ast.Attribute(value=ast.Name(id="os"), attr=name)) if name in FOLLOWING:
                given = {each.arg: each.value for each in node.keywords}
                told = given.get("follow_symlinks")
                held = isinstance(told, ast.Constant) and told.value is False and name not in NEVER
                if any(str(each).endswith("dir_fd") for each in given) and not held:
                    found.append(f"os.{name} in line {node.lineno}")
    return found


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_what_is_named_in_an_open_folder_is_not_followed(path: Path) -> None:
    assert followed(path.read_text()) == [], "use sandpool.node.openat"


def test_it_would_be_found() -> None:
    assert followed("os.chmod(name, 0o777, dir_fd=folder)") == ["os.chmod in line 1"]
    assert followed("os.chmod(name, 0o777, dir_fd=folder, follow_symlinks=False)") == ["os.chmod in line 1"]
    assert followed("os.chown(name, 1, 2, dir_fd=folder)\nos.stat(name, dir_fd=folder)") != []
    assert followed("os.link(a, b, src_dir_fd=one, dst_dir_fd=two)") == ["os.link in line 1"]
    assert followed("os.stat(name, dir_fd=folder, follow_symlinks=False)\nos.chmod('/proc/self/fd/3', 0)") == []
