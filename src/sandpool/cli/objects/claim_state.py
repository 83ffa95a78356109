"""A claim as a row for people. Pure: now is an argument."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sandpool.controlplane.apiserver.tables.age import human, since
from sandpool.sdk.claims import SandboxInfo, info_of

Json = dict[str, Any]
HEADER = ("NAME", "STATE", "POOL", "SANDBOX", "AGE", "ENDS")
WIDE = (*HEADER, "REASON")


def row(claim: Json, now: datetime, *, wide: bool = False) -> tuple[str, ...]:
    info = info_of(claim)
    cells = (
        info.name,
        info.state.value,
        info.pool,
        info.sandbox or "<none>",
        since(claim["metadata"].get("creationTimestamp"), now),
        _ends(info, now),
    )
    return (*cells, info.reason) if wide else cells


def known(claim: Json) -> tuple[str, str, str]:
    """What is worth a new line when it changes; an age is not."""
    info = info_of(claim)
    return info.state.value, info.sandbox, info.reason


def _ends(info: SandboxInfo, now: datetime) -> str:
    if info.expires is None:
        return "never"
    left = int((info.expires - now).total_seconds())
    return f"in {human(left)}" if left > 0 else f"{human(-left)} ago"
