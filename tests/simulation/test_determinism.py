"""The same seed gives the same run, byte for byte, in every process."""

from __future__ import annotations

import os
import subprocess
import sys

from sandpool.simulation.run import run_seed

SEEDS = (3, 17)
_PROGRAM = """
import sys
from sandpool.simulation.run import run_seed
for seed in map(int, sys.argv[1:]):
    sys.stdout.write(run_seed(seed, trace=True).trace)
"""


def _traces(hash_seed: str) -> bytes:
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM, *map(str, SEEDS)],
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
        capture_output=True,
        check=True,
        timeout=100,
    )
    return done.stdout


def test_two_processes_with_different_hash_seeds_run_alike() -> None:
    one = _traces("1")
    assert one.count(b"\n") > 500
    assert one == _traces("4242")


def test_a_seed_does_not_depend_on_what_ran_before() -> None:
    first = run_seed(SEEDS[0], trace=True)
    run_seed(SEEDS[1])
    again = run_seed(SEEDS[0], trace=True)
    assert (first.trace, first.counts) == (again.trace, again.counts)


def test_seeds_differ() -> None:
    assert run_seed(1, trace=True).trace != run_seed(2, trace=True).trace
