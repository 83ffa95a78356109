"""Durations as Kubernetes programs take them: `300ms`, `90s`, `5m`, `1h30m`, or a bare number of seconds."""

from __future__ import annotations

import re

from sandpool.cli.exits import USAGE, Exit

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h)")


def duration(text: str, flag: str, *, zero: bool = False) -> float:
    """Seconds; `flag` is what a message should name. `zero`: whether 0 makes sense."""
    if re.fullmatch(r"\d+(?:\.\d+)?", text):
        seconds = float(text)
    elif re.fullmatch(f"(?:{_PART.pattern})+", text):
        seconds = sum(float(number) * _UNITS[unit] for number, unit in _PART.findall(text))
    else:
        raise Exit(USAGE, f"{flag} {text!r} is not a duration; write for example 500ms, 30s or 5m")
    if seconds <= 0 and not zero:
        raise Exit(USAGE, f"{flag} must be longer than 0")
    return seconds
