"""Times on the wire, and durations as kubectl shows them.

Times are RFC 3339 in UTC, to the second in most fields and to the microsecond in leases and events. Durations have few digits: the longer
they are, the coarser.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, timezone

_RFC3339 = re.compile(
    r"(\d{4})-(\d{2})-(\d{2})T(\d{1,2}):(\d{2}):(\d{2})(?:[.,](\d+))?(?:(Z)|([+-])(\d{2}):(\d{2}))", re.ASCII
)
UNKNOWN = "<unknown>"


class TimeError(ValueError):
    """Text that is no RFC 3339 time; the message names it."""


def seconds(moment: datetime) -> str:
    """metav1.Time: whole seconds."""
    return f"{moment.astimezone(UTC).isoformat(timespec='seconds')[:19]}Z"


def micro(moment: datetime) -> str:
    """metav1.MicroTime: always six decimals."""
    return f"{seconds(moment)[:-1]}.{moment.microsecond:06d}Z"


def parse(text: str) -> datetime:
    """Parses any RFC 3339 time; returns it in UTC. Decimals beyond microseconds are cut off."""
    found = _RFC3339.fullmatch(text)
    if found is None:
        raise TimeError(f'parsing time "{text}" as "2006-01-02T15:04:05Z07:00": not an RFC 3339 time')
    year, month, day, hour, minute, second = (int(part) for part in found.groups()[:6])
    fraction = int((found[7] or "")[:6].ljust(6, "0"))
    zone: timezone = UTC
    if found[9]:
        hours, minutes = int(found[10]), int(found[11])
        if hours > 24 or minutes > 60:
            raise TimeError(f'parsing time "{text}": time zone offset out of range')
        offset = timedelta(hours=hours, minutes=minutes)
        if offset >= timedelta(hours=24):
            raise TimeError(f'parsing time "{text}": time zone offset out of range')
        zone = timezone(-offset if found[9] == "-" else offset)
    try:
        return datetime(year, month, day, hour, minute, second, fraction, tzinfo=zone).astimezone(UTC)
    except (ValueError, OverflowError) as error:
        raise TimeError(f'parsing time "{text}": {error}') from None


def human(seconds: int) -> str:
    """Formats like Kubernetes' HumanDuration: 119s, 9m59s, 2h, 7d23h, 3y."""
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
    """The age of an RFC 3339 timestamp, in the format of `human`."""
    if not isinstance(moment, str) or not moment:
        return UNKNOWN
    try:
        then = datetime.fromisoformat(moment)
    except ValueError:
        return UNKNOWN
    if then.tzinfo is None:
        then = then.replace(tzinfo=UTC)
    return human(int((now - then).total_seconds()))
