"""Durations (`300ms`, `90s`, `5m`, `1h30m`, a number of seconds) and sizes (`500Mi`) on the command line."""

from __future__ import annotations

import re

from sandpool.cli.exits import USAGE, Exit


def byte_count(text: str, flag: str) -> int:
    """Exits if it is not a size."""
    from sandpool.model.quantities import QuantityError, parse

    try:
        value = parse(text)
    except QuantityError as error:
        raise Exit(USAGE, f"{flag} {text!r} is not a size; write for example 500Mi or 20Gi") from error
    return value.value


_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h)")


def duration(text: str, flag: str, *, zero: bool = False) -> float:
    """Seconds; `flag` is for messages. `zero`: whether 0 is allowed."""
    if re.fullmatch(r"\d+(?:\.\d+)?", text):
        seconds = float(text)
    elif re.fullmatch(f"(?:{_PART.pattern})+", text):
        seconds = sum(float(number) * _UNITS[unit] for number, unit in _PART.findall(text))
    else:
        raise Exit(USAGE, f"{flag} {text!r} is not a duration; write for example 500ms, 30s or 5m")
    if seconds <= 0 and not zero:
        raise Exit(USAGE, f"{flag} must be longer than 0")
    return seconds


def size(count: int) -> str:
    """`80.4 MB`: decimal units, like disks and downloads."""
    for unit, name in ((10**9, "GB"), (10**6, "MB"), (10**3, "kB")):
        if count >= unit:
            return f"{count / unit:.1f} {name}"
    return f"{count} B"
