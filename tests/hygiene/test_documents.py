"""The documents tell the truth: commands, flags, files and links that they name exist, and none is left out."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from support.cluster import sandpool

ROOT = Path(__file__).parents[2]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("tests/**/*.md")])


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(path: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", path.read_text()):
        if not target.startswith(("http://", "https://", "mailto:")):
            assert (path.parent / target).exists(), f"{path.name} links to {target}"


@pytest.mark.parametrize("path", [ROOT / "ARCHITECTURE.md", ROOT / "CONTRIBUTING.md"], ids=lambda path: path.name)
def test_named_files_exist(path: Path) -> None:
    for name in re.findall(r"`((?:[a-z_]+/)+[a-z_]*\.?[a-z]*)`", path.read_text()):
        assert any((base / name).exists() for base in (ROOT, ROOT / "src/sandpool")), f"{path.name} names {name}"


@pytest.mark.parametrize("path", [ROOT / "README.md", ROOT / "CONTRIBUTING.md"], ids=lambda path: path.name)
def test_make_targets_exist(path: Path) -> None:
    makefile = (ROOT / "Makefile").read_text()
    for target in re.findall(r"^(?:\$ )?make ([a-z][a-z-]+)|`make ([a-z][a-z-]+)`", path.read_text(), re.MULTILINE):
        name = "".join(target)
        assert re.search(rf"^{name}:", makefile, re.MULTILINE), f"{path.name} names make {name}"


def test_the_reference_names_every_command_and_flag() -> None:
    reference = (ROOT / "docs/reference/command-line.md").read_text()
    commands = re.findall(r"^\W*([a-z]+)\s{2,}\S", sandpool("--help").stdout, re.MULTILINE)
    assert {"up", "down", "status", "backup", "restore", "token", "crds"} <= set(commands)
    for command in set(commands) - {"version"}:
        assert f"sandpool {command}" in reference
        for flag in re.findall(r"--[a-z][a-z-]+", sandpool(command, "--help").stdout):
            assert flag in reference, f"the reference does not tell {flag} of sandpool {command}"
