"""The numbers in the documents are those of bench/results: written by `python -m bench.publish`, never by hand."""

from __future__ import annotations

import subprocess
import sys

import pytest

from support.product.bench_root import ROOT


@pytest.mark.parametrize("name", ["docs/reference/benchmarks.md", "README.md"])
def test_a_document_says_what_the_results_say(name: str) -> None:
    command = [sys.executable, "-m", "bench.publish", "--check", name]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
