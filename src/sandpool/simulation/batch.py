"""Many seeds, in one process or several, and what came of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from sandpool.simulation.faults import Fault
from sandpool.simulation.mutations import mutated
from sandpool.simulation.run import Result, run_seed

ENOUGH = 200
"""Of so many seeds each kind of fault must have struck at least once."""
STORIES = 3
_CHUNK = 4


@dataclass(slots=True)
class Summary:
    seeds: int = 0
    steps: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    violations: int = 0
    failing: dict[int, tuple[str, ...]] = field(default_factory=dict)
    stories: dict[int, str] = field(default_factory=dict)

    def add(self, result: Result) -> None:
        self.seeds += 1
        self.steps += result.steps
        self.faults.update(result.counts)
        self.violations += len(result.violations)
        if result.violations:
            self.failing[result.seed] = result.violations
            if len(self.stories) < STORIES:
                self.stories[result.seed] = result.story

    @property
    def never(self) -> list[str]:
        """Faults that never struck, where they should have."""
        return [fault.value for fault in Fault if not self.faults[fault.value]] if self.seeds >= ENOUGH else []

    @property
    def passed(self) -> bool:
        return not self.failing and not self.never

    def as_json(self) -> dict[str, Any]:
        return {
            "seeds": self.seeds,
            "steps": self.steps,
            "faults": dict(sorted(self.faults.items())),
            "never": self.never,
            "violations": self.violations,
            "failing": [{"seed": seed, "violations": list(found)} for seed, found in sorted(self.failing.items())],
        }


def run_many(
    seeds: Iterable[int], *, jobs: int = 1, mutation: str = "", told: Callable[[Summary], object] = lambda _: None
) -> Summary:
    """`told` hears of the summary after each seed."""
    summary = Summary()
    for result in _results(seeds, jobs, mutation):
        summary.add(result)
        told(summary)
    return summary


def _results(seeds: Iterable[int], jobs: int, mutation: str) -> Iterator[Result]:
    work = partial(run_mutated, mutation)
    if jobs <= 1:
        yield from map(work, seeds)
        return
    with ProcessPoolExecutor(jobs) as pool:
        yield from pool.map(work, seeds, chunksize=_CHUNK)


def run_mutated(mutation: str, seed: int, *, trace: bool = False) -> Result:
    with mutated(mutation):
        return run_seed(seed, trace=trace)


def caught_by(mutation: str, seeds: Iterable[int]) -> Result | None:
    """The first run that notices the mutation."""
    for seed in seeds:
        result = run_mutated(mutation, seed)
        if result.violations:
            return result
    return None
