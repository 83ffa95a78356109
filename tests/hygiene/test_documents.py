"""The documents tell the truth: commands, flags, files and links that they name exist, and none is left out."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from support.product.cluster import sandpool
from support.product.forked_commands import prepared

ROOT = Path(__file__).parents[2]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("tests/**/*.md")])
LINK = re.compile(r"\]\(([^)#]*)(?:#([^)]*))?\)")
# At the start of a line of code, inside a code span, or in a pipe; not in prose, nor as an argument of something else.
COMMAND = re.compile(r"(?:^ *|`|\| *|\$\()sandpool ([a-z][a-z-]*)([^\n`#|)]*)", re.MULTILINE)


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(path: Path) -> None:
    for target, anchor in LINK.findall(path.read_text()):
        if not target.startswith(("http://", "https://", "mailto:")):
            page = path.parent / target if target else path
            assert page.exists(), f"{path.name} links to {target}"
            assert not anchor or anchor in anchors(page), f"{path.name} links to {target}#{anchor}"


def anchors(page: Path) -> set[str]:
    """Where headings can be linked to, as GitHub names them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_the_index_names_every_page() -> None:
    index = ROOT / "docs/README.md"
    linked = {(index.parent / target).resolve() for target, _ in LINK.findall(index.read_text())}
    assert [page for page in ROOT.glob("docs/**/*.md") if page != index and page not in linked] == []


@pytest.fixture(scope="module", autouse=True)
def commands() -> Iterator[None]:
    with prepared():
        yield


@cache
def told(command: str) -> str:
    """What --help says, in lines so long that no flag is broken."""
    return sandpool(*command.split(), "--help", env={**os.environ, "COLUMNS": "200"}).stdout


def test_commands_and_flags_in_documents_exist() -> None:
    commands = set(re.findall(r"^\W*([a-z][a-z-]*)\s{2,}\S", told(""), re.MULTILINE))
    seen = [(path, *found) for path in DOCUMENTS for found in COMMAND.findall(path.read_text())]
    assert len(seen) > 50
    for path, command, rest in seen:
        assert command in commands, f"{path.name}: sandpool {command}"
        for flag in re.findall(
            r"(?<= )--?[a-z][a-z0-9-]*", rest.partition(" -- ")[0]
        ):  # what follows is of another program
            said = _help_of(command, rest)
            assert re.search(rf"(?<![\w-]){flag}(?![\w-])", said), f"{path.name}: sandpool {command}{rest}: {flag}"


def _help_of(command: str, rest: str) -> str:
    """Of a command that has commands of its own, what the one that is named says."""
    word = rest.split()[0]
    return (
        told(f"{command} {word}")
        if re.search(rf"^\W*{re.escape(word)}\s{{2,}}\S", told(command), re.MULTILINE)
        else told(command)
    )


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
    commands = re.findall(r"^\W*([a-z][a-z-]*)\s{2,}\S", told(""), re.MULTILINE)
    assert {"up", "down", "status", "backup", "restore", "token", "crds"} <= set(commands)
    for command in set(commands) - {"version"}:
        assert f"sandpool {command}" in reference
        for flag in re.findall(r"--[a-z][a-z0-9-]+", told(command)):
            assert flag in reference, f"the reference does not tell {flag} of sandpool {command}"


def test_the_reference_of_commands_is_what_the_code_says() -> None:
    tool = ROOT / "tools" / "cli_reference.py"
    done = subprocess.run([sys.executable, str(tool), "--check"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_reference_of_commands_names_each_argument_once() -> None:
    page = (ROOT / "docs/reference/command-line.md").read_text()
    usages = re.findall(r"^    sandpool (.*)$", page, re.MULTILINE)
    flags = re.findall(r"^\| (`--[^|]+) \| ", page, re.MULTILINE)
    assert (len(usages) > 20, len(flags) > 50) == (True, True)
    for words in (
        *(re.findall(r"(?<!-)\b[A-Z]{2,}\b", usage) for usage in usages),
        *(flag.split(", ") for flag in flags),
    ):
        assert len(words) == len(set(words)), words
