"""`make bench-parts`: runs every benchmark of a single part, each a script of this directory. Nothing here asserts a time."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

from sandpool.load.scenario import Scenario, exit_code, measure, run_script


def part(script: Path) -> Scenario:
    described = ast.get_docstring(ast.parse(script.read_text())) or ""
    return Scenario(
        script.stem.removeprefix("bench_").replace("_", "-"),
        described.partition("\n")[0],
        measure=lambda: run_script(str(script), *sys.argv[1:]),
        by=f"python tests/bench/{script.name}",
    )


def main() -> int:
    return exit_code(measure([part(script) for script in sorted(Path(__file__).parent.glob("bench_*.py"))]))


if __name__ == "__main__":
    sys.exit(main())
