"""Renders a result for a terminal: a compact table and a histogram. Pure: numbers in, text out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sandpool.load.counts import is_aside
from sandpool.load.distribution import blocks, histogram, log_edges

_BINS = 48


def table(result: Mapping[str, Any], latencies: Sequence[float]) -> str:
    """`latencies` are in seconds, from when claims should have been sent."""
    rows = [*_outcome(result), *_latency(result), *_rates(result), *_cost(result), *_used(result)]
    rows += _errors(result)
    if "highest_rate" in result:
        rows += _steps(result)
    width = max(len(name) for name, _ in rows)
    lines = [f"{name:<{width}}  {text}" if name else f"{'':<{width}}  {text}" for name, text in rows]
    return "\n".join([*lines, *_histogram(latencies), *_conditions(result)])


def _outcome(result: Mapping[str, Any]) -> list[tuple[str, str]]:
    claims = f"{result['ready']} of {result['claims']} ready"
    if result["failed"]:
        claims += f", {result['failed']} failed"
    if result["throttled"]:
        claims += f", {result['throttled']} times throttled (429)"
    warm = result["warm_fraction"]
    return [
        ("claims", claims),
        *_waited(result),
        ("warm", "not known" if warm is None else f"{warm:.1%}"),
        *_order(result),
    ]


def _waited(result: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Claims that are neither Ready nor failed: the server did not admit them within their timeout."""
    if not result.get("turned_away"):
        return []
    text = f"{result['turned_away']} were not admitted within their timeout"
    if not (unsent := result.get("not_sent")):
        return [("turned away", text)]
    return [("turned away", text), ("", f"{unsent} of them were not sent: all connections waited for answers")]


def _order(result: Mapping[str, Any]) -> list[tuple[str, str]]:
    count = result.get("inversions")
    if not count:
        return []
    return [
        (
            "out of order",
            f"{count} served before an older one, which came at most {ms(result['inversion_max_ms'])} later",
        )
    ]


def _latency(result: Mapping[str, Any]) -> list[tuple[str, str]]:
    sent = result["from_sent"]
    rows = [("to Ready", _points(result)), ("  from sent", _points(sent))]
    if result["late_p99_ms"] is not None:
        rows.append(("  sent late by", f"p99 {ms(result['late_p99_ms'])}"))
    for name, prefix in (("to first output", "first_output_"), ("file in and out", "files_")):
        values = {key.removeprefix(prefix): value for key, value in result.items() if key.startswith(prefix)}
        if values.get("p50_ms") is not None:
            rows.append((name, _points(values)))
    return rows


def _points(numbers: Mapping[str, Any]) -> str:
    names = (("p50", "p50_ms"), ("p90", "p90_ms"), ("p99", "p99_ms"), ("p99.9", "p99_9_ms"), ("max", "max_ms"))
    return "  ".join(f"{name} {ms(numbers[key])}" for name, key in names if numbers.get(key) is not None) or "none"


def _rates(result: Mapping[str, Any]) -> list[tuple[str, str]]:
    parts = [f"{number(result['wall_s'])} s"]
    if result["claims_per_s"] is not None:
        parts.append(f"{number(result['claims_per_s'])} claims/s")
    if result.get("goodput_per_s") is not None:
        parts.append(f"{number(result['goodput_per_s'])}/s while claims came")
    if result["submit_per_s"] is not None:
        parts.append(f"submitted at {number(result['submit_per_s'])}/s")
    parts.append(f"at most {result['peak_waiting']} waiting")
    rows = [("time", ", ".join(parts))]
    if result.get("refilled_s") is not None:
        rows.append(("pool full again", f"after {number(result['refilled_s'])} s"))
    if result.get("refills_s"):
        values = ", ".join("not in time" if each is None else f"{number(each)} s" for each in result["refills_s"])
        rows.append(("  after each burst", values))
    if result["released"]:
        rows.append(("released", f"{result['released']}, p50 {ms(result['release_p50_ms'])}"))
    return rows


def _cost(result: Mapping[str, Any]) -> list[tuple[str, str]]:
    not_told = result["not_told"]
    if result["writes_per_claim"] is None:
        rows = [("writes", f"not known: {not_told.get('writes', 'no claim was served')}")]
    else:
        rows = [("writes per claim", f"{number(result['writes_per_claim'])}, {_kinds(result)}")]
        rows.append(("conflicts", f"{result['conflicts']}, and {result['not_found']} not found"))
    reconciles = result["reconciles_per_claim"]
    why = not_told.get("reconciles", "no claim was served")
    rows.append(("reconciles per claim", number(reconciles) if reconciles is not None else f"not known: {why}"))
    return rows


def _kinds(result: Mapping[str, Any]) -> str:
    kinds = result["writes"].get("controllers", {})
    aside = {kind: count for kind, count in kinds.items() if is_aside(kind)}
    text = f"{sum(kinds.values()) - sum(aside.values())} in all"
    return text + "".join(f", besides {count} {kind}" for kind, count in aside.items())


def _errors(result: Mapping[str, Any]) -> list[tuple[str, str]]:
    rows = []
    for kind, count in result["errors_by_kind"].items():
        rows.append(("", f"{kind}: {count}"))
        if example := (result.get("error_examples") or {}).get(kind):
            rows.append(("", f"  for example: {example}"))
    return rows


def _used(result: Mapping[str, Any]) -> list[tuple[str, str]]:
    rows = []
    if result["server_cpu_s"] is not None:
        memory = f", at most {size(result['server_peak_bytes'])}" if result["server_peak_bytes"] else ""
        rows.append(("server", f"{number(result['server_cpu_s'])} s of CPU{memory}"))
    for name, used in result["processes"].items():
        rows.append((name, f"{number(used['cpu_s'])} s of CPU, {size(used['resident_bytes'])}"))
    share = result["generator_cpu_share"]
    busy = "" if share is None else f", {share:.0%} of one core"
    rows.append(("generator", f"{number(result['generator_cpu_s'])} s of CPU{busy}"))
    return rows


def _steps(result: Mapping[str, Any]) -> list[tuple[str, str]]:
    highest = result["highest_rate"]
    rows = [("highest rate", f"{number(highest)} claims/s" if highest else "none was held")]
    rows.append(("limited by", str(result["limited_by"])))
    for step in result["steps"]:
        held = "held" if step["held"] else "not held"
        away = f", {_away(step)}" if step.get("turned_away") else ""
        served = f", served {number(step['goodput_per_s'])}/s" if step.get("goodput_per_s") is not None else ""
        rows.append(("", f"{number(step['rate'])}/s: {_points(step)}, {step['errors']} errors{away}{served}, {held}"))
    past = [_past(each) for each in result.get("past", ())]
    return [*rows, *zip(["past it", *[""] * len(past)], past, strict=False)]


def _away(counted: Mapping[str, Any]) -> str:
    unsent = f" ({counted['not_sent']} not sent)" if counted.get("not_sent") else ""
    return f"{counted['turned_away']} turned away{unsent}"


def _past(past: Mapping[str, Any]) -> str:
    warm = "" if past["warm_fraction"] is None else f", {past['warm_fraction']:.1%} warm"
    share = "" if past["of_capacity"] is None else f" ({past['of_capacity']:.0%} of the highest rate)"
    waits = f"{past['throttled']} times 429, {_away(past)}, {past['failed_admitted']} admitted ones failed"
    served = "unknown" if past["sustained_per_s"] is None else f"{number(past['sustained_per_s'])}/s"
    order = f", {past['inversions']} out of order" if past["inversions"] else ""
    return f"{number(past['rate'])}/s offered: served {served}{share}{warm}{order}, {waits}"


def _histogram(latencies: Sequence[float]) -> list[str]:
    samples = [latency for latency in latencies if latency > 0]
    if not samples:
        return []
    low, high = min(samples), max(samples)
    counts = histogram(samples, log_edges(low, high, _BINS))
    return ["", f"{ms(low * 1000)} {blocks(counts)} {ms(high * 1000)}"]


def _conditions(result: Mapping[str, Any]) -> list[str]:
    at = result["conditions"]
    durable = {True: "durable", False: "NOT durable (its data is in memory)", None: ""}[at.get("durable")]
    what = [str(at["cluster"]), f"backend {at['backend']}" if at.get("backend") else "", durable]
    load = " ".join(f"{value:g}" for value in at["load_average_before"])
    where = [at["machine"], f"{at['cores']} cores", at["kernel"], at["python"], f"load before {load}"]
    return ["", ", ".join(filter(None, what)), ", ".join(where), *([at["note"]] if at.get("note") else [])]


def ms(value: float) -> str:
    return f"{value / 1000:.2f} s" if value >= 10_000 else f"{number(value)} ms"


def number(value: float) -> str:
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.3g}"


def size(value: float) -> str:
    return f"{value / (1 << 20):,.0f} MiB"
