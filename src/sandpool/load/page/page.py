"""Assembles the page of one run: numbers, charts, all measurements, conditions. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from importlib.resources import files
from typing import Any

from sandpool.load.page import figures
from sandpool.load.record import ClaimRecord
from sandpool.load.table import ms, number, size


def page(result: Mapping[str, Any], records: Sequence[ClaimRecord], pool: Sequence[tuple[float, int]]) -> str:
    style = (files(__package__) / "style.css").read_text()
    title = _title(result)
    cards = [
        _card("Time to Ready", "Part of the claims that were Ready within a time.", figures.distribution(records)),
        _card("How often each time occurred", "", figures.histogram_of(records)),
        _card("Claims over time", "Waiting: wanted and not yet Ready.", figures.timeline(records)),
        _card("Members that can be claimed", _refill(result), figures.pool_level(pool, records)),
        _card("Writes of the controllers, by kind", _writes(result), figures.writes(result)),
    ]
    if result.get("steps"):
        steps = f'<div class="halves"><div>{figures.ramp(result)}</div>{steps_table(result)}</div>'
        cards.insert(0, _card("Steps of the ramp", _ramp(result), steps, wide=True))
    cards += [
        _card("Conditions", "", conditions_table(result)),
        _card("Numbers", "", numbers_table(result), wide=True),
    ]
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">"
        f"<title>{escape(title)}</title><style>{style}</style></head><body><main>"
        f'<h1>{escape(title)}</h1><p class="lead">{_lead(result)}</p>'
        f'<div class="tiles">{_tiles(result)}</div><div class="cards">{"".join(filter(None, cards))}</div>'
        "<footer>Times count from the moment at which the load wanted a claim, not from when it could be sent.</footer>"
        "</main></body></html>\n"
    )


def _title(result: Mapping[str, Any]) -> str:
    load = result["load"]
    shape = {
        "burst": f"A burst of {result['claims']:,} claims",
        "bursts": f"{load.get('times')} bursts of {load.get('claims')} claims",
        "rate": f"{load.get('rate'):g} claims a second" if load.get("rate") else "",
        "poisson": f"{load.get('rate'):g} claims a second, at random" if load.get("rate") else "",
        "ramp": f"{result.get('highest_rate') or 0:g} claims a second held",
        "replay": f"{result['claims']:,} claims of a trace",
    }.get(load.get("shape", ""), "")
    return f"{shape or 'Claims'} on a pool of {load.get('pool_size', 0):,}"


def _lead(result: Mapping[str, Any]) -> str:
    at = result["conditions"]
    durable = {True: ", durable writes", False: ", <b>writes not durable</b>", None: ""}[at.get("durable")]
    backend = f", backend <b>{escape(str(at['backend']))}</b>" if at.get("backend") else ""
    hollow = " (pods become Ready, no process starts)" if at.get("backend") == "hollow" else ""
    note = f"<br>{escape(at['note'])}" if at.get("note") else ""
    return f"{escape(str(at['cluster']))}{backend}{hollow}{durable}, {at['cores']} cores{note}"


def _tiles(result: Mapping[str, Any]) -> str:
    def tile(name: str, text: str, small: str = "", bad: bool = False) -> str:
        unit = f" <small>{escape(small)}</small>" if small else ""
        return f'<div class="tile{" bad" if bad else ""}"><span>{escape(name)}</span><b>{escape(text)}{unit}</b></div>'

    found = [tile("Ready", f"{result['ready']:,}", f"of {result['claims']:,}", result["ready"] < result["claims"])]
    for name, key in (
        ("p50", "p50_ms"),
        ("p99", "p99_ms"),
        ("max", "max_ms"),
        ("p50 to output", "first_output_p50_ms"),
        ("p50 of a file", "files_p50_ms"),
    ):
        if result.get(key) is not None:
            text, _, unit = ms(result[key]).partition(" ")
            found.append(tile(name, text, unit))
    if result["claims_per_s"] is not None:
        found.append(tile("Claims", number(result["claims_per_s"]), "/s"))
    if result["warm_fraction"] is not None:
        found.append(tile("Warm", f"{result['warm_fraction'] * 100:.3g} %"))
    if result["writes_per_claim"] is not None:
        found.append(tile("Writes each", number(result["writes_per_claim"])))
    if result["conflicts"] is not None:
        found.append(tile("Conflicts", str(result["conflicts"]), bad=result["conflicts"] > 0))
    if result.get("turned_away"):
        found.append(tile("Turned away", str(result["turned_away"])))
    if result.get("not_sent"):
        found.append(tile("Of these not sent", str(result["not_sent"])))
    if result["failed"]:
        found.append(tile("Failed", str(result["failed"]), bad=True))
    return "".join(found)


def _card(title: str, about: str, body: str, wide: bool = False) -> str:
    if not body:
        return ""
    text = f"<p>{escape(about)}</p>" if about else ""
    return f'<section class="card{" wide" if wide else ""}"><h2>{escape(title)}</h2>{text}{body}</section>'


def _refill(result: Mapping[str, Any]) -> str:
    full = result.get("refilled_s")
    return f"Full again after {number(full)} s." if full is not None else ""


def _writes(result: Mapping[str, Any]) -> str:
    each = result.get("writes_per_claim")
    return "" if each is None else f"{number(each)} for each claim, refill included; Events are shown and not counted."


def _ramp(result: Mapping[str, Any]) -> str:
    highest = result.get("highest_rate")
    held = f"{number(highest)} claims a second were held." if highest else "No rate was held."
    return f"{held} Limited by {result['limited_by']}. Everything below is about {_shown(result)}."


def _shown(result: Mapping[str, Any]) -> str:
    """Which step the other numbers are those of."""
    return "the highest rate that was held" if result.get("highest_rate") else "the last rate that was tried"


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
        ("throttled (429)", str(result["throttled"])),
        ("not admitted within their timeout", str(result.get("turned_away", 0))),
        ("of these not sent: all connections waited", str(result.get("not_sent", 0))),
        ("not found", _told(result, "not_found", result["not_found"])),
        ("conflicts", _told(result, "conflicts", result["conflicts"])),
        ("reconciles per claim", _told(result, "reconciles", result["reconciles_per_claim"])),
        ("writes of all clients", "" if result["stored_writes"] is None else f"{result['stored_writes']:,}"),
        ("server", _server(result)),
        *(
            (name, f"{number(used['cpu_s'])} s of CPU, {size(used['resident_bytes'])}")
            for name, used in result["processes"].items()
        ),
        ("generator", _generator(result)),
        *((f"error: {kind}", str(count)) for kind, count in result["errors_by_kind"].items()),
    ]
    known = [(name, text) for name, text in pairs if text]
    middle = (len(known) + 1) // 2
    return f'<div class="halves">{_pairs(known[:middle])}{_pairs(known[middle:])}</div>'


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
