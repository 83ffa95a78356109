"""`make bench`: measures the standard set on temporary local clusters, repeated in alternating order, and writes `bench/results`.

    PYTHONPATH=tests python -m bench.standard [--quick] [--repeats N] [--only NAME ...] [--into DIRECTORY]

Each run has a new cluster in its own process. What is measured and why is in docs/reference/benchmarks.md.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

from bench import RESULTS
from bench.memory import per_member
from bench.overload import overload
from bench.pools import refill, rollout
from bench.scenarios import FULL, QUICK, Scale, plain, real
from bench.sustained import sustained
from sandpool.base.clock import SystemClock
from sandpool.load.fresh import on_disk
from sandpool.load.machine import is_durable
from sandpool.load.scenario import Scenario, exit_code, measure
from sandpool.load.series import HOLLOW, around


def scenarios(scale: Scale) -> list[Scenario]:
    clock = SystemClock()
    few, fewest = min(scale.few, scale.repeats), min(scale.fewest, scale.repeats)
    return [
        *plain(scale),
        Scenario(
            "local-refill",
            f"a pool from 0 to {scale.refill} members",
            measure=lambda: refill(scale.refill, "hollow", clock),
            by="python -m bench.standard --only local-refill",
            repeats=scale.repeats,
        ),
        Scenario(
            "local-refill-real",
            f"a pool from 0 to {scale.refill} real sandboxes",
            measure=lambda: refill(scale.refill, "namespaces", clock),
            by="python -m bench.standard --only local-refill-real",
            repeats=few,
        ),
        Scenario(
            "local-rollout",
            f"{scale.rollout_rate} claims a second while the template of a pool of {scale.rollout_pool} is rolled out",
            measure=lambda: rollout(scale.rollout_pool, scale.rollout_rate, scale.seconds, clock),
            by="python -m bench.standard --only local-rollout",
            repeats=few,
        ),
        Scenario(
            "local-memory",
            f"memory of the controllers for pools of {', '.join(f'{size:,}' for size in scale.pools)}",
            measure=lambda: per_member(scale.pools),
            by="python -m bench.standard --only local-memory",
            repeats=fewest,
        ),
        Scenario(
            "local-rate",
            f"the highest constant rate that {scale.minute} seconds of claims were served at with a p99 within 100 ms",
            measure=lambda: sustained(scale),
            by="python -m bench.standard --only local-rate",
            repeats=fewest,
        ),
        *_past(scale, fewest),
    ]


def _past(scale: Scale, repeats: int) -> list[Scenario]:
    few = real(scale)
    return [
        Scenario(
            "local-overload",
            f"{_times(scale)} the highest rate held for {scale.minute} seconds, offered for {scale.past_seconds} seconds",
            measure=lambda: overload(scale),
            by="python -m bench.standard --only local-overload",
            repeats=repeats,
        ),
        Scenario(
            "local-overload-real",
            f"the same with real sandboxes and a command in each, {_times(few)} their highest rate",
            measure=lambda: overload(few, "--backend", "namespaces", "--exec", "echo ready"),
            by="python -m bench.standard --only local-overload-real",
            repeats=repeats,
        ),
    ]


def _times(scale: Scale) -> str:
    return " and ".join(f"{times:g}" for times in scale.past) + " times"


def main() -> int:
    parser = argparse.ArgumentParser(description="Measures the standard set on this machine.")
    parser.add_argument("--quick", action="store_true", help="small numbers, once: checks that everything works")
    parser.add_argument("--repeats", type=int, default=0, help="runs of each scenario")
    parser.add_argument("--only", nargs="+", default=[], help="names of scenarios")
    parser.add_argument("--into", type=Path, default=RESULTS, help="directory of the results")
    arguments = parser.parse_args()
    scale = QUICK if arguments.quick else FULL
    if arguments.quick and arguments.into == RESULTS:
        parser.error("--quick results are not worth publishing; name another directory with --into")
    if arguments.repeats:
        scale = replace(scale, repeats=arguments.repeats)
    known = scenarios(scale)
    unknown = set(arguments.only) - {each.name for each in known}
    if unknown:
        parser.error(
            f"no such scenario: {', '.join(sorted(unknown))}; there are {', '.join(each.name for each in known)}"
        )
    chosen = [each for each in known if not arguments.only or each.name in arguments.only]
    durable, file_system = is_durable(on_disk() or tempfile.gettempdir())
    conditions = around(fsync=durable, file_system=file_system, node=HOLLOW)
    return exit_code(measure(chosen, conditions=conditions, into=arguments.into))


if __name__ == "__main__":
    sys.exit(main())
