"""The page of one run, put together: numbers first, then pictures, then everything that was measured, and where. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from importlib.resources import files
from typing import Any

from sandpool.load.page import figures
from sandpool.load.page.tables import conditions_table, numbers_table, steps_table
from sandpool.load.record import ClaimRecord
from sandpool.load.table import ms, number


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
