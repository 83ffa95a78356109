"""What one claim costs inside the process: CPU, commits, reconciles, calls and encodings, by counts rather than by the clock.

A burst of 300 claims on a pool of 600, fake pods, a durable store, everything in this process. CPU is process time (all threads);
a last burst runs under a profiler that only counts. Prints; asserts nothing. `--bursts N` for a longer run.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import uvloop

sys.path.insert(0, str(Path(__file__).parent))

from bench_claims import BURST, POOL, Latencies, a_cluster, filled

from sandpool.app.controllers import Controllers, Observability
from sandpool.controlplane.store.errors import StoreFailed
from sandpool.controlplane.store.log import Commit
from sandpool.kube.api import Api
from sandpool.model.kinds import POOLS, TEMPLATES
from sandpool.telemetry.metrics import Metrics

PAUSE = 0.7  # seconds between bursts: what is told later is told then


class Commits:
    """The store's observer."""

    def __init__(self) -> None:
        self.made = self.writes = 0

    def committed(self, commit: Commit) -> None:
        self.made += 1
        self.writes += commit.writes

    def failed(self, error: StoreFailed) -> None:
        raise SystemExit(f"the store failed: {error}")


def reconciles(metrics: Metrics) -> Counter[str]:
    found: Counter[str] = Counter()
    for family in metrics.reconciles.collect():
        for sample in family.samples:
            if sample.name.endswith("_total"):
                found[sample.labels["controller"]] += int(sample.value)
    return found


@contextmanager
def calls(into: Counter[str]) -> Iterator[None]:
    """Counts calls of this thread: Python functions, and the C functions that read and write JSON."""

    def count(frame: FrameType, event: str, arg: Any) -> None:
        if event == "call":
            into["functions"] += 1
        elif event == "c_call":
            into["C functions"] += 1
            name = getattr(arg, "__qualname__", "")
            if "decode" in name or "encode" in name:
                into[name] += 1

    sys.setprofile(count)
    try:
        yield
    finally:
        sys.setprofile(None)


async def full_pool(user: Api, controllers: Controllers) -> None:
    pod = {"containers": [{"name": "main", "image": "python"}]}
    await user.create(TEMPLATES, {"metadata": {"name": "python"}, "spec": {"podTemplate": {"spec": pod}}}, "default")
    spec = {"replicas": POOL, "sandboxTemplateRef": {"name": "python"}}
    await user.create(POOLS, {"metadata": {"name": "python"}, "spec": spec}, "default")
    await filled(controllers)
    await asyncio.sleep(PAUSE)


async def burst(
    user: Api, controllers: Controllers, number: int, ready: Callable[[], object] = lambda: None
) -> tuple[list[float], float, float]:
    """Latencies, CPU per claim until all are Ready, and until the pool is full again. `ready` is called in between."""
    latencies = Latencies(controllers)
    cpu = time.process_time()
    await asyncio.gather(*(latencies.claim(user, f"burst-{number}-{index}") for index in range(BURST)))
    await latencies.all_served(BURST)
    served = time.process_time() - cpu
    ready()
    await filled(controllers)
    await asyncio.sleep(PAUSE)
    return sorted(latencies.took.values()), served / BURST, (time.process_time() - cpu) / BURST


async def main(bursts: int) -> None:
    observability, commits = Observability(), Commits()
    async with a_cluster(0, True, observability, commits) as (user, counting, controllers):
        await full_pool(user, controllers)
        print(f"{'burst':>6} {'p50':>8} {'p99':>8} {'CPU to Ready':>13} {'CPU in all':>11}   per claim")
        spent: list[tuple[float, float]] = []
        for number in range(bursts):
            before, made, writes = reconciles(observability.metrics), commits.made, commits.writes
            counting.clear()
            times, served, total = await burst(user, controllers, number)
            spent.append((served, total))
            done = reconciles(observability.metrics) - before
            print(
                f"{number + 1:>6} {times[BURST // 2] * 1e3:>5.0f} ms {times[int(BURST * 0.99)] * 1e3:>5.0f} ms "
                f"{served * 1e3:>10.2f} ms {total * 1e3:>8.2f} ms   "
                f"{(commits.writes - writes) / BURST:.1f} writes in {commits.made - made} commits, reconciles "
                + ", ".join(f"{name} {count / BURST:.2f}" for name, count in sorted(done.items()))
            )
        print(
            f"median CPU per claim: {statistics.median(one for one, _ in spent) * 1e3:.2f} ms to Ready, "
            f"{statistics.median(one for _, one in spent) * 1e3:.2f} ms in all"
        )
        counted: Counter[str] = Counter()
        to_ready: Counter[str] = Counter()
        with calls(counted):
            await burst(user, controllers, bursts, lambda: to_ready.update(counted))
        for when, found in (("to Ready", to_ready), ("in all", counted)):
            print(f"calls per claim {when}: " + ", ".join(f"{name} {n / BURST:.1f}" for name, n in found.most_common()))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bursts", type=int, default=6)
    uvloop.run(main(parser.parse_args().bursts))
