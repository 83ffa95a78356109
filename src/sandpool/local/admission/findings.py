"""What a walk through a document found: at first nothing, and then no cost."""

from __future__ import annotations

from sandpool.kube.errors import Cause
from sandpool.local.admission.paths import Place, render


class Findings:
    """Collects causes, unknown fields and the first reason why the document could not be decoded at all."""

    __slots__ = ("causes", "kind", "root", "undecodable", "unknown", "warnings")

    def __init__(self, kind: str = "", root: str = "") -> None:
        self.causes: list[Cause] = []
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
