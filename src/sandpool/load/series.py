"""A series: all runs of one scenario and the conditions of the measurement, stored as one JSON file.

`sides` holds the runs by what was measured: `ours` alone on a local cluster; `ours`, `go` and `floor` side by side on Kubernetes.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from sandpool.load.machine import conditions

FORMAT = 1
OURS = "ours"
HOLLOW = "hollow: pods become Ready as a kubelet would report it, but no process starts"


class Series(msgspec.Struct, kw_only=True):
    """`extra` holds what a scenario reports besides its runs, such as failed ones."""

    scenario: str
    title: str
    command: str
    sides: dict[str, list[dict[str, Any]]]
    conditions: dict[str, Any]
    extra: dict[str, Any] = {}
    format: int = FORMAT

    @property
    def runs(self) -> list[dict[str, Any]]:
        return self.sides.get(OURS, [])


def around(**more: Any) -> dict[str, Any]:
    """Conditions before the first run, so that the load average does not contain our own load."""
    now = datetime.now(UTC).isoformat(timespec="seconds")
    return {"measured": now, **conditions(), **more}


def write(series: Series, directory: Path) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"{series.scenario}.json"
    text = msgspec.json.format(msgspec.json.encode(series), indent=1)
    path.write_bytes(text + b"\n")
    return path


def read(path: Path) -> Series:
    return msgspec.json.decode(path.read_bytes(), type=Series)


def read_all(directory: Path) -> dict[str, Series]:
    """All series of a directory, by scenario."""
    found = (read(path) for path in sorted(directory.glob("*.json")))
    return {series.scenario: series for series in found}


def alternated(names: Iterable[str], repeat: int) -> list[str]:
    """Forward, then backward, so that a machine that gets slower (or faster) over time affects all of them alike."""
    ordered = list(names)
    return ordered if repeat % 2 == 0 else ordered[::-1]


async def busy_cores(seconds: float = 1.0) -> float:
    """How many cores other programs use while this one is idle. Time stolen by a hypervisor counts as used."""
    before = _used_ticks()
    await asyncio.sleep(seconds)
    return round((_used_ticks() - before) / os.sysconf("SC_CLK_TCK") / seconds, 2)


def _used_ticks() -> int:
    """user, nice, system, irq, softirq, steal; not idle and waiting."""
    fields = Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]
    return sum(int(value) for place, value in enumerate(fields) if place not in (3, 4))


def brief(result: Mapping[str, Any]) -> str:
    """The most important numbers of a run, for the progress output."""
    names = (
        *(
            "ready",
            "p50_ms",
            "p99_ms",
            "writes_per_claim",
            "conflicts",
            "highest_rate",
            "held_rate",
            "of_capacity_2x",
            "of_capacity_5x",
        ),
        *("first_output_p50_ms", "took_s", "bytes_per_member", "busy_cores_before"),
    )
    numbers = [f"{name} {result[name]:,.4g}" for name in names if isinstance(result.get(name), int | float)]
    return ", ".join(numbers)
