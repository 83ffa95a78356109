"""Runs scenarios on gvisor as whoever starts this, with one runtime, and prints what became of each as a line of JSON; or, with
`forever` instead of their names, starts a sandbox, prints the pid of its fork-server, and waits to be killed."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import traceback
from pathlib import Path
from typing import Any, cast

from sandpool.node.runtimes.contract import Stdio
from sandpool.node.runtimes.gvisor.runtime import GvisorRuntime
from support.node.sandbox_scenarios import SCENARIOS
from support.node.sandboxes import FOREVER, Bench, shell


async def scenarios(runtime: GvisorRuntime, folder: Path, names: list[str]) -> None:
    for number, name in enumerate(names):
        own = folder / str(number)
        own.mkdir()
        try:
            async with asyncio.timeout(60):
                await SCENARIOS[name](Bench(cast(Any, runtime), own))
            wrong = ""
        except Exception:
            wrong = traceback.format_exc()
        print(json.dumps({"name": name, "wrong": wrong}), flush=True)


async def main(folder: Path, installation: str, names: list[str]) -> None:
    runtime = GvisorRuntime(folder / "runtime", installation=installation)
    await runtime.open()
    try:
        if names != ["forever"]:
            await scenarios(runtime, folder, names)
            return
        async with Bench(cast(Any, runtime), folder).sandbox() as sandbox:
            await sandbox.start(shell(FOREVER), Stdio())
            print((await runtime.runtime_host.living_server()).pid, flush=True)
            await asyncio.Event().wait()
    finally:
        await runtime.close()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), f"{sys.argv[2]}{os.geteuid()}", sys.argv[3:]))
