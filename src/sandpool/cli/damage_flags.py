"""Flags about a data directory that is damaged."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from cyclopts import Parameter


@Parameter(name="*")
@dataclass(frozen=True)
class DamageFlags:
    accept_loss: Annotated[
        bool,
        Parameter(
            negative="",
            help="Start with what is left of a damaged data directory. The damaged files are kept in a directory in it.",
        ),
    ] = False

    def arguments(self) -> list[str]:
        """The same again, for another run of the command."""
        return ["--accept-loss"] if self.accept_loss else []
