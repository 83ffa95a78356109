"""How much memory `sandpool up` holds after an hour's worth of claims at 5 a second, run faster: it must reach a plateau.

    python tests/bench/bench_memory.py [--claims 18000] [--steps 5] [--rate 60] [--members 20] [--backend hollow] [--data-dir FOLDER]

A cluster is started in a process of its own, with a pool of 20. Claims come at a constant rate; each is Ready, kept for a moment and
released. After each step the resident size of the server is printed, and how much it grew for each claim of that step.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from sandpool.load.scenario import Failed, run_load_command
from support.product.cluster import Cluster, sandpool, stop


def resident(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise AssertionError("no VmRSS")


def serve(cluster: Cluster, claims: int, rate: float) -> None:
    arguments = ["rate", "--rate", f"{rate:g}", "--for", f"{claims / rate:g}s", "--pool", "python"]
    arguments += ["--dwell", "100ms", "--no-watch-sandboxes", *cluster.flag]
    found = asyncio.run(run_load_command(*arguments, timeout=300 + 2 * claims / rate))
    if found["failed"]:
        raise Failed(f"{found['failed']} of {found['claims']} claims failed")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--claims", type=int, default=18_000)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--rate", type=float, default=60.0)
    parser.add_argument("--members", type=int, default=20)
    parser.add_argument("--backend", default="hollow")
    parser.add_argument("--data-dir", type=Path)
    flags = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=flags.data_dir) as folder:
        cluster = Cluster(Path(folder))
        cluster.up("--backend", flags.backend, "--pool", f"python={flags.members}")
        try:
            pid = cluster.running.pid
            sandpool("pool", "rollout", "status", "python", *cluster.flag, "--timeout", "120")
            before = resident(pid)
            print(f"{'claims':>8} {'MB':>7} {'kB each':>8}   (pool of {flags.members}, {flags.backend})")
            print(f"{0:8} {before / 1e6:7.1f}", flush=True)
            step = flags.claims // flags.steps
            for number in range(1, flags.steps + 1):
                serve(cluster, step, flags.rate)
                now = resident(pid)
                print(f"{number * step:8} {now / 1e6:7.1f} {(now - before) / step / 1e3:8.1f}", flush=True)
                before = now
        finally:
            stop(cluster)


if __name__ == "__main__":
    main()
