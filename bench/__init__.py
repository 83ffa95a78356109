"""The published benchmarks: which scenarios are measured (`standard`, `kube`) and the pages made from the results (`publish`).

How a scenario is described, run and stored is `sandpool.load.{scenario,series}`; this package is not installed. Results are
JSON files in `results/`, with their conditions. Tables are generated from them, never edited. Nothing here asserts a time.
"""

from __future__ import annotations

from pathlib import Path

RESULTS = Path(__file__).parent / "results"
