"""How images are listed. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from sandpool.controlplane.apiserver.tables.age import human

if TYPE_CHECKING:
    from sandpool.node.images.upkeep import Listed

_HEADERS = ("NAME", "ID", "SIZE", "AGE", "USED", "HOLDERS")
_NAMED = 3  # holders that are named; the others are counted


def rows(images: Sequence[Listed]) -> list[dict[str, Any]]:
    """For programs."""
    return [asdict(one) | {"at": _moment(one.at), "used_at": _moment(one.used_at)} for one in images]


def table(images: Sequence[Listed], now: float) -> str:
    """For people: one line for each name."""
    lines = [_HEADERS]
    for one in images:
        facts = (one.id[7:19], size(one.bytes), human(int(now - one.at)), human(int(now - one.used_at)), _holders(one))
        lines += [(name, *facts) for name in one.names or ("<none>",)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(_HEADERS))]
    return "".join(
        "   ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() + "\n"
        for line in lines
    )


def _holders(one: Listed) -> str:
    named = ", ".join(one.holders[:_NAMED])
    return f"{named} and {len(one.holders) - _NAMED} more" if len(one.holders) > _NAMED else named


def size(count: int) -> str:
    """`80.4 MB`: as disks and downloads are measured."""
    for unit, name in ((10**9, "GB"), (10**6, "MB"), (10**3, "kB")):
        if count >= unit:
            return f"{count / unit:.1f} {name}"
    return f"{count} B"


def _moment(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
