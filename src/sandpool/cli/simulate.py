"""`sandpool simulate`: runs the controllers under seeded schedules and faults, in virtual time."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Annotated, Literal

import msgspec
from cyclopts import Parameter

from sandpool.cli.exits import FAILED, USAGE, Exit

if TYPE_CHECKING:
    from sandpool.simulation.run import Summary

_PROGRESS = 5.0
"""Seconds between two lines of progress."""

CountFlag = Annotated[int, Parameter(name="--seeds", help="How many seeds to run.")]
StartFlag = Annotated[int, Parameter(name="--start", help="The first seed.")]
OutputFlag = Annotated[
    Literal["text", "json"], Parameter(name=["--output", "-o"], help="Output format, for people or for programs.")
]
JobsFlag = Annotated[int, Parameter(name="--jobs", help="How many processes share the seeds.")]
TraceFlag = Annotated[
    int | None, Parameter(name="--trace", show_default=False, help="Print every step of this one seed instead.")
]
MutationFlag = Annotated[
    str,
    Parameter(
        name="--mutation", show_default=False, help="Remove one safeguard, to check that the simulation notices."
    ),
]


def simulate(
    *,
    seeds: CountFlag = 100,
    start: StartFlag = 0,
    output: OutputFlag = "text",
    jobs: JobsFlag = 1,
    trace: TraceFlag = None,
    mutation: MutationFlag = "",
) -> None:
    """Run the controllers on a simulated cluster, with faults, and check their invariants.

    A seed stands for one run, the same every time. Exits with 1 if an invariant was violated, or if of 200 seeds or more
    one kind of fault never occurred; the traces of the first failing seeds show what happened.
    """
    from sandpool.simulation.mutations import MUTATIONS
    from sandpool.simulation.run import run_many, run_mutated

    if seeds < 1 or jobs < 1:
        raise Exit(USAGE, f"--seeds {seeds} --jobs {jobs}: both must be at least 1")
    if mutation and mutation not in MUTATIONS:
        raise Exit(USAGE, f"--mutation {mutation}: unknown; use one of: {', '.join(MUTATIONS)}")
    if trace is not None:
        result = run_mutated(mutation, trace, trace=True)
        sys.stdout.write(result.trace)
        if result.violations:
            raise Exit(FAILED, f"seed {trace} violates {len(result.violations)} invariants\n{result.report}")
        return
    summary = run_many(range(start, start + seeds), jobs=jobs, mutation=mutation, progress=_Progress(seeds))
    print(msgspec.json.encode(summary.as_json()).decode() if output == "json" else _text(summary), flush=True)
    for seed, report in summary.reports.items():
        print(f"\nseed {seed}\n{report}", file=sys.stderr)
    if not summary.passed:
        raise Exit(FAILED, _verdict(summary))


class _Progress:
    """Prints progress on stderr from time to time."""

    def __init__(self, seeds: int) -> None:
        self._seeds = seeds
        self._next = time.monotonic() + _PROGRESS

    def __call__(self, summary: Summary) -> None:
        if time.monotonic() >= self._next and summary.seeds < self._seeds:
            self._next = time.monotonic() + _PROGRESS
            print(f"{summary.seeds} of {self._seeds} seeds, {len(summary.failing)} failing", file=sys.stderr)


def _text(summary: Summary) -> str:
    lines = [f"seeds       {summary.seeds}", f"steps       {summary.steps}", "faults"]
    lines += [f"  {count:>8}  {name}" for name, count in sorted(summary.faults.items())]
    lines.append(f"violations  {summary.violations}")
    for seed, violations in sorted(summary.failing.items()):
        lines.append(
            f"  seed {seed}: {violations[0]}" + (f" (and {more} more)" if (more := len(violations) - 1) else "")
        )
    return "\n".join(lines)


def _verdict(summary: Summary) -> str:
    if summary.failing:
        first = next(iter(sorted(summary.failing)))
        return (
            f"{len(summary.failing)} of {summary.seeds} seeds failed; see one with `sandpool simulate --trace {first}`"
        )
    return f"these faults never occurred, so nothing is known about them: {', '.join(summary.never)}"
