"""`make bench`: the standard set on temporary local clusters, repeated, in alternating order, written to `bench/results`.

    PYTHONPATH=tests python -m bench.standard [--quick] [--repeats N] [--only NAME ...] [--into FOLDER]

Each run has a new cluster in a process of its own. What is measured and why is in docs/reference/benchmarks.md.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from bench.commands import TROUBLES, in_order, load, say, written
from bench.memory import per_member
from bench.overload import overload
from bench.pools import refill, rollout
from bench.scenarios import FULL, QUICK, Scale, plain, real
from bench.series import HOLLOW, OURS, RESULTS, Series, alternated, around, brief, busy_cores, write
from bench.sustained import sustained
from sandpool.base.clock import SystemClock
from sandpool.load.fresh import on_disk
from sandpool.load.machine import is_durable

Run = Callable[[], Awaitable[dict[str, Any]]]


@dataclass(frozen=True, slots=True)
class Part:
    name: str
    title: str
    command: str
    run: Run
    repeats: int


def parts(scale: Scale) -> list[Part]:
    clock = SystemClock()
    few, fewest = min(scale.few, scale.repeats), min(scale.fewest, scale.repeats)
    found = [
        Part(
            each.name,
            each.title,
            written(each.load),
            lambda each=each: load(*each.load),  # type: ignore[misc]
            few if each.long else scale.repeats,
        )
        for each in plain(scale)
    ]
    found += [
        Part(
            "local-refill",
            f"a pool from 0 to {scale.refill} members",
            "python -m bench.standard --only local-refill",
            lambda: refill(scale.refill, "hollow", clock),
            scale.repeats,
        ),
        Part(
            "local-refill-real",
            f"a pool from 0 to {scale.refill} real sandboxes",
            "python -m bench.standard --only local-refill-real",
            lambda: refill(scale.refill, "namespaces", clock),
            few,
        ),
        Part(
            "local-rollout",
            f"{scale.rollout_rate} claims a second while the template of a pool of {scale.rollout_pool} is rolled out",
            "python -m bench.standard --only local-rollout",
            lambda: rollout(scale.rollout_pool, scale.rollout_rate, scale.seconds, clock),
            few,
        ),
        Part(
            "local-memory",
            f"memory of the controllers for pools of {', '.join(f'{size:,}' for size in scale.pools)}",
            "python -m bench.standard --only local-memory",
            lambda: per_member(scale.pools),
            fewest,
        ),
        Part(
            "local-rate",
            f"the highest constant rate that {scale.minute} seconds of claims were served at with a p99 within 100 ms",
            "python -m bench.standard --only local-rate",
            lambda: sustained(scale),
            fewest,
        ),
        *_past(scale, fewest),
    ]
    return found


def _past(scale: Scale, repeats: int) -> list[Part]:
    few = real(scale)
    return [
        Part(
            "local-overload",
            f"{_times(scale)} the highest rate held for {scale.minute} seconds, offered for {scale.past_seconds} seconds",
            "python -m bench.standard --only local-overload",
            lambda: overload(scale),
            repeats,
        ),
        Part(
            "local-overload-real",
            f"the same with real sandboxes and a command in each, {_times(few)} their highest rate",
            "python -m bench.standard --only local-overload-real",
            lambda: overload(few, "--backend", "namespaces", "--exec", "echo ready"),
            repeats,
        ),
    ]


def _times(scale: Scale) -> str:
    return " and ".join(f"{times:g}" for times in scale.past) + " times"


async def measure(chosen: Sequence[Part], folder: Path) -> int:
    """All parts once, then again backwards, and so on. After each run what is known is written: nothing is lost by an interruption."""
    durable, file_system = is_durable(on_disk() or tempfile.gettempdir())
    conditions = around(fsync=durable, file_system=file_system, node=HOLLOW)
    sides: dict[str, list[dict[str, Any]]] = {part.name: [] for part in chosen}
    by_name = {part.name: part for part in chosen}
    failures = 0
    for repeat in range(max(part.repeats for part in chosen)):
        for name in alternated(by_name, repeat):
            part = by_name[name]
            if repeat >= part.repeats:
                continue
            say(f"{name}, run {repeat + 1} of {part.repeats}: {part.title}")
            try:
                busy = await busy_cores()
                found = {**await part.run(), "busy_cores_before": busy}
            except TROUBLES as error:
                failures += 1
                say(f"  failed: {error}")
                continue
            sides[name].append(found)
            say(f"  {brief(found)}")
            done = Series(
                scenario=name,
                title=part.title,
                command=part.command,
                sides={OURS: sides[name]},
                conditions=conditions,
            )
            write(done, folder)
    return failures


def main() -> int:
    parser = argparse.ArgumentParser(description="Measures the standard set on this machine.")
    parser.add_argument(
        "--quick", action="store_true", help="small numbers, once: shows that it works, measures nothing"
    )
    parser.add_argument("--repeats", type=int, default=0, help="runs of each scenario")
    parser.add_argument("--only", nargs="+", default=[], help="names of scenarios")
    parser.add_argument("--into", type=Path, default=RESULTS, help="folder of the results")
    arguments = parser.parse_args()
    scale = QUICK if arguments.quick else FULL
    if arguments.quick and arguments.into == RESULTS:
        parser.error("--quick measures nothing worth publishing; say with --into where its results go")
    if arguments.repeats:
        scale = replace(scale, repeats=arguments.repeats)
    known = parts(scale)
    unknown = set(arguments.only) - {part.name for part in known}
    if unknown:
        parser.error(
            f"no such scenario: {', '.join(sorted(unknown))}; there are {', '.join(part.name for part in known)}"
        )
    chosen = [part for part in known if not arguments.only or part.name in arguments.only]
    return in_order(measure(chosen, arguments.into))


if __name__ == "__main__":
    sys.exit(main())
