"""Writes the tables of README.md and docs/reference/benchmarks.md from `bench/results`: the only way in which numbers get there.

    python -m bench.publish           writes them
    python -m bench.publish --check   ends with 1 if they are not what it would write

What stands between two markers is replaced, everything else is left alone.
"""

from __future__ import annotations

import argparse
import sys
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path

from bench import RESULTS, pages
from bench.targets import TARGETS, Found
from sandpool.load.series import read_all

ROOT = Path(__file__).parents[1]
BEGIN, END = "<!-- bench: begin -->", "<!-- bench: end -->"
WHY = Path(__file__).parent / "why.toml"
PAGES: dict[str, Callable[[Found, Mapping[str, str]], str]] = {
    "README.md": pages.readme,
    "docs/reference/benchmarks.md": pages.reference,
}


class NoPlace(Exception):
    """A document has no markers for the numbers."""


def placed(text: str, inside: str, name: str) -> str:
    """The text with what is between its markers replaced."""
    head, begin, rest = text.partition(BEGIN)
    _, end, tail = rest.partition(END)
    if not begin or not end or BEGIN in tail or END in tail:
        raise NoPlace(f"{name} must have the line {BEGIN} once, and the line {END} once after it")
    return f"{head}{BEGIN}\n{inside}\n{END}{tail}"


def read_why(path: Path = WHY) -> dict[str, str]:
    """Reasons by target. One for a target that does not exist is a mistake."""
    reasons = tomllib.loads(path.read_text())
    unknown = set(reasons) - {target.key for target in TARGETS}
    if unknown:
        raise NoPlace(f"{path.name} has reasons for targets that do not exist: {', '.join(sorted(unknown))}")
    return {key: str(entry["why"]) for key, entry in reasons.items()}


def wanted(name: str, root: Path = ROOT, results: Path = RESULTS, why: Path = WHY) -> str:
    """The document as it should be."""
    inside = PAGES[name](read_all(results), read_why(why))
    return placed((root / name).read_text(), inside, name)


def publish(name: str, check: bool) -> int:
    """0 if the document is now as it should be, 1 if it is not, 2 if it cannot be."""
    try:
        text = wanted(name)
    except NoPlace as error:
        sys.stderr.write(f"error: {error}\n")
        return 2
    if (ROOT / name).read_text() == text:
        return 0
    if check:
        sys.stderr.write(f"{name} is not what bench/results say: run `python -m bench.publish`\n")
        return 1
    (ROOT / name).write_text(text)
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(description="Writes the tables of the documents from bench/results.")
    parser.add_argument("names", nargs="*", choices=[*PAGES, []], help="default: all")
    parser.add_argument("--check", action="store_true", help="write nothing; end with 1 if something would change")
    arguments = parser.parse_args()
    return max(publish(name, arguments.check) for name in arguments.names or PAGES)


if __name__ == "__main__":
    sys.exit(main())
