"""Makes sdk/_sync/ from sdk/_async/: the same program without await. `--check` only checks that they match.

Works on tokens, so strings and comments are changed only by RULES. What differs in more than that is in transport.py and
sync_primitives.py, which are written by hand for both.
"""

from __future__ import annotations

import argparse
import io
import re
import subprocess
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
SDK = ROOT / "src" / "sandpool" / "sdk"
BY_HAND = {"transport.py", "sync_primitives.py", "__init__.py"}

NAMES = {
    "__aenter__": "__enter__",
    "__aexit__": "__exit__",
    "__aiter__": "__iter__",
    "__anext__": "__next__",
    "AsyncIterator": "Iterator",
    "AsyncIterable": "Iterable",
    "AsyncExitStack": "ExitStack",
    "AbstractAsyncContextManager": "AbstractContextManager",
    "StopAsyncIteration": "StopIteration",
    "asynccontextmanager": "contextmanager",
    "enter_async_context": "enter_context",
    "push_async_callback": "callback",
    "aclosing": "closing",
    "aclose": "close",
    "anext": "next",
    "aiter": "iter",
    "_async": "_sync",
}
"""Words that mean the same in both worlds. `AsyncX` becomes `X` besides."""

WORDS = {
    "async with": "with",
    "async for": "for",
    "await ": "",
    "sdk/_async": "sdk/_sync",
    "task (or thread)": "thread",
}
"""What docstrings and comments say differently. AsyncX becomes X there, too."""

UNTIDY = "# ruff: noqa: C416, SIM110, SIM117, UP028, RUF100"
"""What would be written shorter, had it been written for this world alone."""

DROPPED = {"async", "await"}
WRAPPERS = {"Awaitable", "Coroutine", "Opening", "surely"}
"""Awaitable[X] becomes X, Opening(x) becomes (x): what wraps a value that is still to come. Their imports go as unused ones."""
KEPT_NAMES = re.compile(r"Async(?=[A-Z])")


def translate(source: str, name: str) -> str:
    """The synchronous form of a module of _async; `name` is its file's."""
    tokens = list(tokenize.generate_tokens(io.StringIO(source).readline))
    body = _formatted(tokenize.untokenize(_compact(_translated(tokens))))
    return f"# generated from sdk/_async/{name} by tools/unasync.py; edit that one\n{UNTIDY}\n{body}"


def _compact(tokens: Iterator[tokenize.TokenInfo]) -> list[tuple[int, str]]:
    return [(token.type, token.string) for token in tokens]


def _translated(tokens: list[tokenize.TokenInfo]) -> Iterator[tokenize.TokenInfo]:
    dropped: list[bool] = []  # of each bracket that is open: whether it went with its wrapper
    wrapped = False
    for at, token in enumerate(tokens):
        opening, closing = token.string in ("[", "(", "{"), token.string in ("]", ")", "}")
        if token.type == tokenize.NAME:
            following = tokens[at + 1]
            if token.string in DROPPED:
                continue
            if token.string in WRAPPERS and following.string in ("[", "("):
                # Brackets that hold several lines together stay.
                wrapped = tokens[at + 2].type != tokenize.NL
                continue
            yield token._replace(string=_name(token.string))
        elif token.type == tokenize.OP and opening:
            dropped.append(wrapped)
            wrapped = False
            if not dropped[-1]:
                yield token
        elif token.type == tokenize.OP and closing:
            if not dropped.pop():
                yield token
        elif token.type in (tokenize.STRING, tokenize.COMMENT):
            yield token._replace(string=_words(token.string))
        else:
            yield token


def _name(name: str) -> str:
    return NAMES.get(name) or KEPT_NAMES.sub("", name)


def _words(text: str) -> str:
    for word, other in WORDS.items():
        text = text.replace(word, other)
    for name, other in NAMES.items():
        text = re.sub(rf"\b{name}\b", other, text)
    return KEPT_NAMES.sub("", text)


def _formatted(source: str) -> str:
    """As the project's formatter writes it; imports that became unused or moved are put in order."""
    layout, imports = ["format", "--quiet"], ["check", "--select", "I,F401", "--fix-only", "--quiet"]
    for command in (layout, imports, layout):
        done = subprocess.run(
            [sys.executable, "-m", "ruff", *command, "--stdin-filename", str(SDK / "_sync" / "generated.py"), "-"],
            input=source, capture_output=True, text=True, check=True, cwd=ROOT,
        )  # fmt: skip
        source = done.stdout
    return source


def generated() -> dict[Path, str]:
    """What _sync should hold, by file."""
    found = {}
    for path in sorted((SDK / "_async").glob("*.py")):
        if path.name not in BY_HAND:
            found[SDK / "_sync" / path.name] = translate(path.read_text(), path.name)
    return found


def stale(wanted: dict[Path, str]) -> list[str]:
    """What is not as it should be."""
    old = [f"{path.relative_to(ROOT)} is out of date" for path, text in wanted.items() if _read(path) != text]
    return old + [f"{path.relative_to(ROOT)} has no source in _async" for path in _orphans(wanted)]


def _orphans(wanted: dict[Path, str]) -> list[Path]:
    return [path for path in sorted((SDK / "_sync").glob("*.py")) if path not in wanted and path.name not in BY_HAND]


def _read(path: Path) -> str:
    return path.read_text() if path.exists() else ""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="change nothing; fail if something would change")
    arguments = parser.parse_args()
    wanted = generated()
    wrong = stale(wanted)
    if arguments.check:
        for line in wrong:
            print(f"{line}; run tools/unasync.py", file=sys.stderr)
        return 1 if wrong else 0
    for path, text in wanted.items():
        if _read(path) != text:
            path.write_text(text)
    for path in _orphans(wanted):
        path.unlink()
    return 0


if __name__ == "__main__":
    sys.exit(main())
