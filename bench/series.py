"""A series: the runs of one scenario and the conditions under which they were made. One file of JSON each.

`sides` holds the runs by who was measured: `ours` alone on a local cluster; `ours`, `go` and `floor` beside each other on Kubernetes.
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
RESULTS = Path(__file__).parent / "results"
OURS = "ours"
HOLLOW = "hollow: pods become Ready as a kubelet would report it, but no process starts"


class Series(msgspec.Struct, kw_only=True):
    """`extra` holds what a scenario tells besides its runs, such as the ramp that found a rate."""

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
    """Conditions before the first run: what ran here before is in the load average, what we do ourselves is not yet."""
    now = datetime.now(UTC).isoformat(timespec="seconds")
    return {"measured": now, **conditions(), **more}


def write(series: Series, folder: Path = RESULTS) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{series.scenario}.json"
    text = msgspec.json.format(msgspec.json.encode(series), indent=1)
    path.write_bytes(text + b"\n")
    return path


def read(path: Path) -> Series:
    return msgspec.json.decode(path.read_bytes(), type=Series)


def read_all(folder: Path = RESULTS) -> dict[str, Series]:
    """By scenario."""
    found = (read(path) for path in sorted(folder.glob("*.json")))
    return {series.scenario: series for series in found}


def alternated(names: Iterable[str], repeat: int) -> list[str]:
    """Forward, then backward: what grows worse (or better) with time does so for all alike."""
    ordered = list(names)
    return ordered if repeat % 2 == 0 else ordered[::-1]


async def busy_cores(seconds: float = 1.0) -> float:
    """How many cores others use, in a moment in which we do nothing. Time that a hypervisor took away counts as used."""
    before = _used_ticks()
    await asyncio.sleep(seconds)
    return round((_used_ticks() - before) / os.sysconf("SC_CLK_TCK") / seconds, 2)


def _used_ticks() -> int:
    """user, nice, system, irq, softirq, steal; not idle and waiting."""
    fields = Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]
    return sum(int(value) for place, value in enumerate(fields) if place not in (3, 4))


def brief(result: Mapping[str, Any]) -> str:
    """The numbers of a run that one wants to see while waiting for the next."""
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
    told = [f"{name} {result[name]:,.4g}" for name in names if isinstance(result.get(name), int | float)]
    return ", ".join(told)
