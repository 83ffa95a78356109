"""Writes the generated parts of docs/reference/command-line.md: what a command does, its arguments and its flags, from the code.

A part stands between `<!-- of: COMMAND -->` and `<!-- end -->`; `flags` is those that are the same everywhere. What is around them is
written by hand. `--check` changes nothing and ends with 1 if a part is not what the code says.
"""

from __future__ import annotations

import argparse
import inspect
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sandpool.cli.main import build

PAGE = Path(__file__).parents[1] / "docs" / "reference" / "command-line.md"
PART = re.compile(r"(<!-- of: (?P<name>[a-z -]+) -->\n).*?(?=<!-- end -->)", re.DOTALL)
SHARED = {"Cluster": "cluster", "Output": "output"}
"""Groups of flags that are documented once."""


def written(page: str) -> str:
    """The page as it should be."""
    return PART.sub(lambda found: found[1] + "".join(f"{line}\n" for line in part(found["name"])), page)


def part(name: str) -> Iterator[str]:
    if name == "flags":
        yield from shared()
        return
    command: Any = build()
    for word in name.split():
        command = command[word]
    arguments = [one for one in command.assemble_argument_collection() if one.show]
    own = [one for one in arguments if group_of(one) not in SHARED]
    yield ""
    yield f"    sandpool {usage(name, own)}"
    yield ""
    yield from (inspect.getdoc(command.default_command) or "").splitlines()
    yield ""
    if own:
        yield from table(own)
    groups = sorted({SHARED[group_of(one)] for one in arguments if group_of(one) in SHARED})
    if groups:
        yield f"And the {' and '.join(groups)} flags that are [the same everywhere](#flags-that-are-the-same-everywhere)."
        yield ""


def shared() -> Iterator[str]:
    """As `get` has them, which has them all."""
    arguments = [one for one in build()["get"].assemble_argument_collection() if one.show]
    for group, word in SHARED.items():
        yield ""
        yield f"**{word.capitalize()} flags**"
        yield ""
        yield from table([one for one in arguments if group_of(one) == group])


def usage(name: str, arguments: list[Any]) -> str:
    words: list[str] = []
    for one in arguments:
        if one.index is not None:
            many = one.field_info.kind is inspect.Parameter.VAR_POSITIONAL
            word = one.names[0] + ("..." if many else "")
            word = f"-- {word}" if one.names[0] == "COMMAND" else word
            words.append(word if one.field_info.required else f"[{word}]")
    flags = any(one.index is None for one in arguments)
    return " ".join([name, *(["[FLAGS]"] if flags else []), *words])


def table(arguments: list[Any]) -> Iterator[str]:
    yield "| argument or flag | default | meaning |"
    yield "|---|---|---|"
    for one in arguments:
        names = ", ".join(f"`{name}`" for name in dict.fromkeys((*one.names, *one.negatives)))
        yield f"| {names} | {default(one)} | {one.parameter.help.rstrip('.').replace('|', ',')} |"
    yield ""


def default(one: Any) -> str:
    value, parameter = one.field_info.default, one.parameter
    told = ""
    if one.field_info.required:
        told = "required"
    elif isinstance(value, bool):
        told = "on" if value else "off"
    elif parameter.show_default is not False and value not in ("", None, (), inspect.Parameter.empty):
        told = str(value)
    twins = " ".join(f"`{name}`" for name in parameter.env_var or ())
    return f"{told} ({twins})" if twins else told


def group_of(one: Any) -> str:
    return str(one.parameter.group[0].name) if one.parameter.group else ""


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--check", action="store_true", help="only check whether the page is up to date")
    before = PAGE.read_text()
    after = written(before)
    if options.parse_args().check:
        if before != after:
            print(f"{PAGE.name} is not what the code says; run tools/cli_reference.py", file=sys.stderr)
        return int(before != after)
    PAGE.write_text(after)
    return 0


if __name__ == "__main__":
    sys.exit(main())
