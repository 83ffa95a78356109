"""Times on the wire: RFC 3339 in UTC, to the second in most fields and to the microsecond in leases and events.

Parsing is as strict as Go's; formatting drops what the field cannot hold.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, timezone

_RFC3339 = re.compile(
    r"(\d{4})-(\d{2})-(\d{2})T(\d{1,2}):(\d{2}):(\d{2})(?:[.,](\d+))?(?:(Z)|([+-])(\d{2}):(\d{2}))", re.ASCII
)


class TimeError(ValueError):
    """Text that is no RFC 3339 time; the message names it."""


def seconds(moment: datetime) -> str:
    """metav1.Time: whole seconds."""
    return f"{moment.astimezone(UTC).isoformat(timespec='seconds')[:19]}Z"


def micro(moment: datetime) -> str:
    """metav1.MicroTime: always six decimals."""
    return f"{seconds(moment)[:-1]}.{moment.microsecond:06d}Z"


def parse(text: str) -> datetime:
    """Any RFC 3339 time, in UTC. Decimals beyond microseconds are cut."""
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
