"""`make quick`: runs the unit tests of the rooms that a change touches, and the tests it touches itself.

A file in `src/sandpool/ROOM/PART` is tested by `tests/unit/ROOM/PART` where there is one, else by `tests/unit/ROOM`. Compared is the
working tree with HEAD, or, when nothing is uncommitted, with the commit before.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).parent.parent
SLOW = ("tests/integration", "tests/kube", "tests/node", "tests/e2e", "tests/escape", "tests/bench", "tests/support")


def changed() -> list[str]:
    """Paths that differ from HEAD, untracked ones included; of a clean tree, those of the last commit."""
    return _git("diff", "--name-only", "HEAD") + _git("ls-files", "--others", "--exclude-standard") or _git(
        "diff", "--name-only", "HEAD~1"
    )


def tests_of(paths: Iterable[str], exists: set[str]) -> list[str]:
    """The directories and files to run. Pure: `exists` has every directory and file below `tests/`."""
    found: set[str] = set()
    for path in paths:
        if not path.endswith(".py"):
            continue
        if path.startswith("tests/"):
            if path in exists and Path(path).name.startswith("test_") and not path.startswith(SLOW):
                found.add(path)
            continue
        if path.startswith("src/sandpool/"):
            parts = Path(path).relative_to("src/sandpool").parts[:-1]
            while parts:
                directory = "/".join(("tests/unit", *parts))
                if directory in exists:
                    found.add(directory)
                    break
                parts = parts[:-1]
    return sorted(one for one in found if not any(one != other and one.startswith(f"{other}/") for other in found))


def main() -> int:
    below = {str(path.relative_to(ROOT)) for path in (ROOT / "tests").rglob("*")}
    chosen = tests_of(changed(), below)
    if not chosen:
        print("no unit tests belong to what changed", file=sys.stderr)
        return 0
    command = [sys.executable, "-m", "pytest", "-q", "-n", "auto", "-m", "not long and not kube and not bench", *chosen]
    print(" ".join(command[2:]), file=sys.stderr)
    return subprocess.run(command, cwd=ROOT, check=False).returncode


def _git(*words: str) -> list[str]:
    done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout.split("\n")[:-1]


if __name__ == "__main__":
    sys.exit(main())
