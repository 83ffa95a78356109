"""What is written into README.md and docs/reference/benchmarks.md, from results alone. Pure: the same results give the same text."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from statistics import median

from bench import kube_tables, local_tables
from bench.series import Series
from bench.targets import TARGETS, Found, Target, Value
from bench.texts import number, table, with_range

QUIET = 0.3
"""Cores that others may use before times are called those of a busy machine."""


def readme(found: Found, why: Mapping[str, str]) -> str:
    """The targets, under which conditions, and what to do to measure it oneself."""
    if not found:
        return "Nothing has been measured yet: `make bench` does it."
    lines = [*busy(found.values()), *targets(found, why), *_conditions(found.values())]
    return "\n".join(lines).strip()


def reference(found: Found, why: Mapping[str, str]) -> str:
    if not found:
        return "Nothing has been measured yet: `make bench` does it."
    parts = [
        *busy(found.values()),
        *_titled("### Targets", targets(found, why)),
        *_titled("### One machine, hollow pods and real sandboxes", local_tables.claims(found)),
        *_titled("### The highest rate", local_tables.rate(found)),
        *_titled("### Pools of different sizes", local_tables.pools(found)),
        *_titled("### Filling a pool, and a rollout under load", local_tables.moves(found)),
        *_titled("### Kubernetes, side by side", kube_tables.sides(found)),
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
        wanted = f"{'≥' if target.at_least else '≤'} {target.limit:,g} {target.unit}".strip()
        rows.append((target.what, wanted, with_range(value, target.unit), verdict(target, value, why)))
    return table(("what", "target", "measured", ""), rows)


def verdict(target: Target, value: Value | None, why: Mapping[str, str]) -> str:
    if value is None:
        return "–"
    if target.reached(value):
        return "reached"
    cause = why.get(target.key, "why is not known yet")
    return f"**missed**, {target.missed_by(value)}: {cause}"


def busy(series: Iterable[Series]) -> list[str]:
    """A warning, if others used the machine: then times say little."""
    samples = [
        float(run["busy_cores_before"])
        for each in series
        for runs in each.sides.values()
        for run in runs
        if isinstance(run.get("busy_cores_before"), int | float)
    ]
    if not samples or median(samples) <= QUIET:
        return []
    return [
        f"> **Measured on a busy machine:** before the runs, other programs used {number(median(samples))} cores (median, at most "
        f"{number(max(samples))}). Times say little; counts and ratios of one run say more.",
        "",
    ]


def _conditions(series: Iterable[Series]) -> list[str]:
    told = sorted({_where(each) for each in series})
    note = [
        "Everything (cluster, node, load generator) runs on the same machine; every write is synced to disk before it is answered. Pods are "
        "hollow (Ready as a kubelet would report it, no process starts) unless the row says real sandboxes. Numbers are medians of runs, "
        "with the range of the runs (of ratios: a 95 % interval) where there were several.",
        "",
    ]
    return [*note, *(f"- {line}" for line in told), ""]


def _where(series: Series) -> str:
    at = series.conditions
    kind = "Kubernetes" if series.scenario.startswith("kube-") else "One machine"
    versions = at.get("versions", {})
    parts = [
        f"{kind}: {str(at['measured'])[:10]}",
        f"{at['machine']}, {at['cores']} cores, {number(at['memory_bytes'] / (1 << 30))} GiB",
        f"{at['kernel']}, {at['python']}, sandpool {versions.get('sandpool', 'unknown')}",
    ]
    if "kubernetes" in at:
        parts.append(f"kube-apiserver {at['kubernetes']}, etcd {at['etcd']} with fsync, {at['go_controller']}")
    return "; ".join(parts)


def _commands(series: Iterable[Series]) -> list[str]:
    return table(("scenario", "command"), [(each.scenario, f"`{each.command}`") for each in series])
