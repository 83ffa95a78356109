"""Tables of the page: everything that was measured, and the conditions. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from html import escape
from typing import Any

from sandpool.load.table import ms, number, size

_LATENCIES = (
    ("p50", "p50_ms"),
    ("p90", "p90_ms"),
    ("p99", "p99_ms"),
    ("p99.9", "p99_9_ms"),
    ("max", "max_ms"),
    ("mean", "mean_ms"),
)


def numbers_table(result: Mapping[str, Any]) -> str:
    sent = result["from_sent"]
    pairs: list[tuple[str, str]] = [
        (f"{name} (from sent)", f"{ms(result[key])} ({ms(sent[key])})")
        for name, key in _LATENCIES
        if result.get(key) is not None and sent.get(key) is not None
    ]
    pairs += [
        ("sent late by, p99", _ms(result["late_p99_ms"])),
        ("to first output, p50 / p99", _both(result, "first_output_p50_ms", "first_output_p99_ms")),
        ("file written and read back, p50 / p99", _both(result, "files_p50_ms", "files_p99_ms")),
        ("from the first wanted to the last Ready", f"{number(result['wall_s'])} s"),
        ("submitted, completed", f"{_rate(result['submit_per_s'])}, {_rate(result['completion_per_s'])}"),
        ("at most waiting, held", f"{result['peak_waiting']}, {result['peak_held']}"),
        ("released, p50 / p99", f"{result['released']}, {_both(result, 'release_p50_ms', 'release_p99_ms')}"),
        ("served while claims came", _rate(result.get("goodput_per_s"))),
        ("served before an older one", _inverted(result)),
        ("told to come back later (429)", str(result["throttled"])),
        ("not taken in until their time was over", str(result.get("turned_away", 0))),
        ("of these not sent: all connections waited", str(result.get("not_sent", 0))),
        ("not found", _told(result, "not_found", result["not_found"])),
        ("conflicts", _told(result, "conflicts", result["conflicts"])),
        ("reconciles per claim", _told(result, "reconciles", result["reconciles_per_claim"])),
        ("writes of everybody", "" if result["stored_writes"] is None else f"{result['stored_writes']:,}"),
        ("server", _server(result)),
        *(
            (name, f"{number(used['cpu_s'])} s of CPU, {size(used['resident_bytes'])}")
            for name, used in result["processes"].items()
        ),
        ("generator", _generator(result)),
        *((f"error: {kind}", str(count)) for kind, count in result["errors_by_kind"].items()),
    ]
    told = [(name, text) for name, text in pairs if text]
    middle = (len(told) + 1) // 2
    return f'<div class="halves">{_pairs(told[:middle])}{_pairs(told[middle:])}</div>'


def conditions_table(result: Mapping[str, Any]) -> str:
    at, load = result["conditions"], result["load"]
    versions = ", ".join(f"{name} {version}" for name, version in at["versions"].items())
    durable = {True: "yes", False: "no: its data is in memory", None: "not known"}[at.get("durable")]
    return _pairs(
        [
            ("load", ", ".join(f"{name} {value}" for name, value in load.items() if value not in (None, ""))),
            ("cluster", f"{at['cluster']} {at.get('kubernetes_version') or ''}"),
            ("backend", str(at.get("backend") or "not known")),
            ("durable writes", f"{durable}{', ' + at['file_system'] if at.get('file_system') else ''}"),
            ("machine", f"{at['machine']}, {at['cores']} cores, {size(at['memory_bytes'])}"),
            ("kernel", at["kernel"]),
            ("Python", at["python"]),
            ("versions", versions),
            ("load average before", " ".join(f"{value:g}" for value in at["load_average_before"])),
            ("note", at.get("note") or ""),
        ]
    )


def steps_table(result: Mapping[str, Any]) -> str:
    rows = []
    for step in sorted(result["steps"], key=lambda step: float(step["rate"])):
        held = '<td class="held">held</td>' if step["held"] else '<td class="broken">not held</td>'
        rows.append(
            f"<tr><td>{number(step['rate'])}/s</td><td>{_ms(step['p50_ms'])}</td><td>{_ms(step['p99_ms'])}</td>"
            f"<td>{step['errors']}</td><td>{_rate(step.get('goodput_per_s'))}</td>"
            f"<td>{step['generator_share']:.0%}</td>{held}</tr>"
        )
    head = "<tr><th>rate</th><th>p50</th><th>p99</th><th>errors</th><th>served</th><th>generator</th><th></th></tr>"
    return f'<div class="scroll"><table class="columns">{head}{"".join(rows)}</table></div>'


def _pairs(pairs: Iterable[tuple[str, str]]) -> str:
    lines = "".join(f"<tr><th>{escape(name)}</th><td>{escape(text)}</td></tr>" for name, text in pairs if text)
    return f"<table>{lines}</table>"


def _server(result: Mapping[str, Any]) -> str:
    if result["server_cpu_s"] is None:
        return ""
    return f"{number(result['server_cpu_s'])} s of CPU, at most {size(result['server_peak_bytes'] or 0)}"


def _generator(result: Mapping[str, Any]) -> str:
    share = result["generator_cpu_share"]
    busy = "" if share is None else f", {share:.0%} of one core"
    return f"{number(result['generator_cpu_s'])} s of CPU{busy}"


def _inverted(result: Mapping[str, Any]) -> str:
    count = result.get("inversions")
    if not count:
        return "" if count is None else "none"
    return f"{count}, which came at most {_ms(result['inversion_max_ms'])} later"


def _told(result: Mapping[str, Any], name: str, value: float | None) -> str:
    return f"not known: {result['not_told'].get(name, 'no claim was served')}" if value is None else number(value)


def _both(result: Mapping[str, Any], first: str, second: str) -> str:
    return "" if result[first] is None else f"{_ms(result[first])} / {_ms(result[second])}"


def _ms(value: float | None) -> str:
    return "none" if value is None else ms(value)


def _rate(value: float | None) -> str:
    return "at once" if value is None else f"{number(value)}/s"
