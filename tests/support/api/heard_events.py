"""An Events that keeps what it hears."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from sandpool.loop.events import Kind


@dataclass
class HeardEvents:
    heard: list[tuple[str, str, str]] = field(default_factory=list)  # kind, reason, message

    def emit(self, resource: Any, about: Any, kind: Kind, reason: str, message: str, action: str = "") -> None:
        self.heard.append((str(kind), str(reason), message))

    def reasons(self) -> list[str]:
        return [reason for _, reason, _ in self.heard]

    def of(self, reason: str) -> list[str]:
        return [message for _, heard, message in self.heard if heard == reason]
