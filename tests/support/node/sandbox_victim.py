"""A process that runs sandboxes until it is killed: prints the pids, on the machine, of everything that it has started."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from sandpool.node.runtimes.contract import Stdio
from support.node.sandboxes import opened, shell


async def main(folder: Path, installation: str, mark: str) -> None:
    async with opened(folder, installation) as bench, bench.sandbox() as one, bench.sandbox() as two:
        for sandbox in (one, two):
            for name in ("a", "b"):
                await sandbox.start(
                    shell(f"trap '' TERM HUP INT; setsid sleep {mark} & sleep {mark}", name=name), Stdio()
                )
        print((await bench.runtime.runtime_host.living_server()).pid, flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2], sys.argv[3]))
