"""A process whose sandboxes outlive it. It starts one with a command that counts into a pipe, prints the pids of its shim and of the command's
init, and waits to be killed."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

from sandpool.node.runtimes.contract import SandboxPlan, Stdio
from support.node.sandboxes import opened, shell

COUNTING = "i=0; while [ $i -lt 100000 ]; do i=$((i+1)); echo $i; sleep 0.01; done"
SHORT = "read go; exit 3"


async def main(folder: Path, installation: str) -> None:
    async with opened(folder, installation, lasting=True) as bench:
        (folder / "one").mkdir()
        sandbox = await bench.runtime.create(SandboxPlan("one", "box", folder / "one", tenant="team"))
        reads, writes = os.pipe()
        counting = await sandbox.start(shell(COUNTING, name="counting"), Stdio(stdout=writes, kept=(reads,)))
        given, gives = os.pipe()
        await sandbox.start(shell(SHORT, name="short", attempt=2), Stdio(stdin=given, kept=(gives,)))
        sandbox.keep("pod", {"name": "first"})
        sandbox.keep("pod", {"name": "last"})
        assert sandbox.shim is not None
        half = sandbox.shim.worker(kept_as="half-0")  # a container whose start is not finished
        assert half
        print(sandbox.shim.pid, counting.pid, flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2]))
