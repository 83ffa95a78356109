"""Controller memory per pool member: `sandpool controller` in a process of its own; the API server and a fake node are other
processes, so that only the controllers are measured.

Read twice for each size, always at rest: in the controller that filled the pool, and in one that was started afterwards.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.pools import grow, make, reached, ready_members
from sandpool.load.fresh import fresh_cluster
from support.kube.process import Controller, controller, hollow_node

REST = 0.5
"""Seconds between two readings of a number that should not change any more."""


async def per_member(sizes: Sequence[int]) -> dict[str, Any]:
    """Resident bytes by pool size, and the growth from the smallest to the largest for each member."""
    filled: dict[str, int] = {}
    restarted: dict[str, int] = {}
    with tempfile.TemporaryDirectory(prefix="sandpool-bench-") as name:
        directory = Path(name)
        async with fresh_cluster("none") as running, reached(Path(running.kubeconfig)) as api:
            kubeconfig = Path(running.kubeconfig)
            with hollow_node(directory, kubeconfig):
                await make(api, 0)
                for size in sizes:
                    with controller(directory, kubeconfig, name=f"fills-{size}") as process:
                        await grow(api, size)
                        await ready_members(api, size)
                        filled[str(size)] = await _at_rest(process)
                    with controller(directory, kubeconfig, name=f"finds-{size}") as process:
                        await asyncio.to_thread(process.wait_ready, leading=True)
                        restarted[str(size)] = await _at_rest(process)
    return {
        "filled_bytes": filled,
        "restarted_bytes": restarted,
        "bytes_per_member": _growth(filled),
        "restarted_bytes_per_member": _growth(restarted),
    }


def _growth(by_size: dict[str, int]) -> float:
    sizes = sorted(int(size) for size in by_size)
    few, many = sizes[0], sizes[-1]
    return round((by_size[str(many)] - by_size[str(few)]) / (many - few), 1)


async def _at_rest(process: Controller) -> int:
    """Resident bytes when it has stopped using the processor: two readings without a CPU tick in between."""
    used = -1
    while (now := _ticks(process.pid)) - used > 2:
        used = now
        await asyncio.sleep(REST)
    return _resident(process.pid)


def _ticks(pid: int) -> int:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


def _resident(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) << 10
    raise ValueError(f"process {pid} has no VmRSS")
