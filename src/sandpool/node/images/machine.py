"""Which of an image's platforms this machine runs. Pure but for `this_machine`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

_NAMES = {
    "x86_64": "amd64",
    "aarch64": "arm64",
    "armv7l": "arm",
    "armv6l": "arm",
    "i686": "386",
    "loongarch64": "loong64",
}
_VARIANTS = {"armv7l": "v7", "armv6l": "v6"}


@dataclass(frozen=True, slots=True)
class Platform:
    os: str = "linux"
    architecture: str = ""
    variant: str = ""

    def __str__(self) -> str:
        return "/".join(part for part in (self.os, self.architecture, self.variant) if part)


def this_machine() -> Platform:
    machine = os.uname().machine
    return Platform("linux", _NAMES.get(machine, machine), _VARIANTS.get(machine, ""))


class Offered(Protocol):
    @property
    def platform(self) -> Platform | None: ...


T = TypeVar("T", bound=Offered)


def choose(offered: Sequence[T], wanted: Platform) -> T | None:
    """The first that names exactly this platform, else the first that would run on it. One that names none comes last."""
    fitting = [one for one in offered if one.platform is None or fits(one.platform, wanted)]
    return min(fitting, key=lambda one: _distance(one.platform, wanted), default=None)


def fits(offered: Platform, wanted: Platform) -> bool:
    if (offered.os, offered.architecture) != (wanted.os, wanted.architecture):
        return False
    if wanted.architecture != "arm":
        return True  # variants of others (arm64/v8, amd64/v2) are mostly noise; the distance prefers the exact one
    return (offered.variant or "v7") <= (wanted.variant or "v7")


def _distance(offered: Platform | None, wanted: Platform) -> int:
    if offered is None:
        return 9
    if offered.variant == wanted.variant:
        return 0
    if wanted.architecture == "arm":
        return 1 if offered.variant == "v6" else 2
    return {"": 1, "v8": 2, "v1": 2}.get(offered.variant, 3)  # an amd64/v3 may need what this machine lacks
