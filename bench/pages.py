"""The generated text of README.md and docs/reference/benchmarks.md, made from results alone. Pure: the same results give the same text."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from statistics import median

from bench import tables
from bench.tables import number, table, with_range
from bench.targets import TARGETS, Found, Target, Value
from sandpool.load.series import Series

QUIET = 0.3
"""Cores that others may use before times are called those of a busy machine."""


def readme(found: Found, why: Mapping[str, str]) -> str:
    """The targets, who did what on Kubernetes, and under which conditions."""
    if not found:
        return "Nothing has been measured yet: `make bench` does it."
    lines = [*busy(found.values()), *targets(found, why), *tables.in_short(found), *_conditions(found.values())]
    return "\n".join(lines).strip()


def reference(found: Found, why: Mapping[str, str]) -> str:
    if not found:
        return "Nothing has been measured yet: `make bench` does it."
    parts = [
        *busy(found.values()),
        *_titled("### Targets", targets(found, why)),
        *_titled("### One machine, fake pods and real sandboxes", tables.claims(found)),
        *_titled("### The highest rate", tables.rate(found)),
        *_titled("### Past capacity", tables.overload(found)),
        *_titled("### Pools of different sizes", tables.pools(found)),
        *_titled("### Filling a pool, and a rollout under load", tables.moves(found)),
        *_titled("### Kubernetes, side by side", tables.sides(found)),
        *_titled("### Conditions", _conditions(found.values())),
        *_titled("### Commands", _commands(found.values())),
    ]
    return "\n".join(parts).strip()


def _titled(title: str, lines: Sequence[str]) -> list[str]:
    return [title, "", *lines] if lines else []


def targets(found: Found, why: Mapping[str, str]) -> list[str]:
    rows = []
    for target in TARGETS:
        value = target.value(found)
        sign = "≥ " if target.at_least else "≤ " if target.limit else ""
        wanted = f"{sign}{target.limit:,g} {target.unit}".strip()
        runs = "–" if value is None else str(value.runs)
        rows.append((target.what, wanted, with_range(value, target.unit), runs, verdict(target, value, why)))
    return table(("what", "target", "measured", "runs", ""), rows)


def verdict(target: Target, value: Value | None, why: Mapping[str, str]) -> str:
    if value is None:
        return "–"
    if target.reached(value):
        return "reached"
    cause = why.get(target.key, "cause not known yet")
    return f"**missed**, {target.missed_by(value)}: {cause}"


def busy(series: Iterable[Series]) -> list[str]:
    """A warning, if others used the machine: then times say little."""
    samples = _others(series)
    if not samples or median(samples) <= QUIET:
        return []
    return [
        f"> **Measured on a busy machine:** before the runs, other programs used {number(median(samples))} cores (median, at most "
        f"{number(max(samples))}). Times are not reliable; counts and ratios within one run are more so.",
        "",
    ]


def _others(series: Iterable[Series]) -> list[float]:
    """Cores that other programs used, before each run."""
    runs = [run for each in series for runs in each.sides.values() for run in runs]
    busy = (run.get("busy_cores_before") for run in runs)
    return [float(cores) for cores in busy if isinstance(cores, int | float)]


def _conditions(series: Iterable[Series]) -> list[str]:
    alike: dict[str, list[Series]] = {}
    for each in series:
        alike.setdefault(_where(each), []).append(each)
    note = [
        "Cluster, node and load generator run on the same machine; every write is synced to disk before it is answered. Pods are "
        "fake (Ready as a kubelet would report it, but no process starts) unless the row says real sandboxes. Numbers are medians of "
        "runs, with the range of the runs (for ratios: a 95 % interval) if there were several.",
        "",
    ]
    return [*note, *(f"- {line}{_before(alike[line])}" for line in sorted(alike)), ""]


def _before(series: Sequence[Series]) -> str:
    """What ran on the machine besides."""
    average = series[0].conditions.get("load_average_before") or ()
    others = _others(series)
    parts = [f"load average before the first run {number(average[0])}"] if average else []
    if others:
        parts.append(f"other programs before each run {number(median(others))} cores, at most {number(max(others))}")
    return "".join(f"; {part}" for part in parts)


def _where(series: Series) -> str:
    at = series.conditions
    kind = "Kubernetes" if series.scenario.startswith("kube-") else "One machine"
    versions = at.get("versions", {})
    parts = [
        f"{kind}: {str(at['measured'])[:10]}",
        f"{at['machine']}, {at['cores']} cores, {number(at['memory_bytes'] / (1 << 30))} GiB",
        f"{at['kernel']}, {at['python']}, sandpool {versions.get('sandpool', 'unknown')}",
    ]
    if "fsync" in at:
        parts.append(
            f"fsync on ({at.get('file_system', 'unknown')})"
            if at["fsync"]
            else "**fsync means nothing here: data in memory**"
        )
    if "kubernetes" in at:
        parts.append(
            f"kube-apiserver {at['kubernetes']}, etcd {at['etcd']}, {at['go_controller']} (later versions exist)"
        )
    return "; ".join(parts)


def _commands(series: Iterable[Series]) -> list[str]:
    return table(("scenario", "command"), [(each.scenario, f"`{each.command}`") for each in series])
