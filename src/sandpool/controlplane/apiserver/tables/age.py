"""Durations as kubectl shows them: short, and the coarser the longer."""

from __future__ import annotations

from datetime import UTC, datetime

UNKNOWN = "<unknown>"


def human(seconds: int) -> str:
    """As Kubernetes' HumanDuration: 119s, 9m59s, 2h, 7d23h, 3y."""
    if seconds < -1:
        return "<invalid>"
    if seconds < 120:
        return f"{max(seconds, 0)}s"
    minutes = seconds // 60
    if minutes < 10:
        return _two(minutes, "m", seconds % 60, "s")
    if minutes < 180:
        return f"{minutes}m"
    hours = minutes // 60
    if hours < 8:
        return _two(hours, "h", minutes % 60, "m")
    if hours < 48:
        return f"{hours}h"
    days = hours // 24
    if days < 8:
        return _two(days, "d", hours % 24, "h")
    if days < 365 * 2:
        return f"{days}d"
    if days < 365 * 8:
        return _two(days // 365, "y", days % 365, "d")
    return f"{days // 365}y"


def _two(major: int, unit: str, minor: int, small: str) -> str:
    return f"{major}{unit}{minor}{small}" if minor else f"{major}{unit}"


def since(moment: object, now: datetime) -> str:
    """The age of a timestamp on the wire."""
    if not isinstance(moment, str) or not moment:
        return UNKNOWN
    try:
        then = datetime.fromisoformat(moment)
    except ValueError:
        return UNKNOWN
    if then.tzinfo is None:
        then = then.replace(tzinfo=UTC)
    return human(int((now - then).total_seconds()))
