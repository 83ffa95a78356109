"""Runs all scenarios as whoever starts this, with one runtime, and prints what became of each as a line of JSON."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import traceback
from pathlib import Path

from support.node.sandbox_scenarios import DELEGATED, SCENARIOS
from support.node.sandboxes import Bench, opened


async def main(folder: Path, names: list[str]) -> None:
    async with opened(folder, f"user{os.getpid()}") as bench:
        for number, name in enumerate(names or SCENARIOS):
            own = folder / str(number)
            own.mkdir()
            try:
                async with asyncio.timeout(60):
                    await (SCENARIOS | DELEGATED)[name](Bench(bench.runtime, own))
                wrong = ""
            except Exception:
                wrong = traceback.format_exc()
            print(json.dumps({"name": name, "wrong": wrong}), flush=True)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2:]))
