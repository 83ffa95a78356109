"""What a walk through a document found: at first nothing, and then no cost."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from sandpool.controlplane.admission.causes import MOST_TOLD
from sandpool.controlplane.admission.paths import Place, render
from sandpool.kube.errors import Cause

MOST: Final = MOST_TOLD + 1
"""Causes after which nobody looks for more: each takes longer than a sound value does, and others wait meanwhile."""


class Enough(Exception):
    """So much is wrong that the rest does not matter."""


class _Causes(list[Cause]):
    def append(self, cause: Cause, /) -> None:
        if len(self) >= MOST:
            raise Enough
        super().append(cause)

    def extend(self, causes: Iterable[Cause], /) -> None:
        for cause in causes:
            self.append(cause)


class Findings:
    """Collects causes, unknown fields and the first reason why the document could not be decoded at all. Raises Enough."""

    __slots__ = ("causes", "kind", "root", "undecodable", "unknown", "warnings")

    def __init__(self, kind: str = "", root: str = "") -> None:
        self.causes: list[Cause] = _Causes()
        self.unknown: list[str] = []
        self.warnings: tuple[str, ...] = ()
        self.undecodable = ""
        self.kind = kind  # of a built-in object; custom resources have no Go struct
        self.root = root  # what messages leave out: a status update speaks of conditions[0], not status.conditions[0]

    def spot(self, place: Place, step: str | int) -> tuple[str, str]:
        """The field that a cause carries, and its name inside the message."""
        field = render((place, step))
        return field, field[len(self.root) :] if field.startswith(self.root) else field

    def cannot_decode(self, why: str) -> None:
        if not self.undecodable:
            self.undecodable = why
