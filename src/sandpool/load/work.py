"""What becomes of a claim that is Ready, in this order: a first command, files, a dwell time, release."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


class FirstOutput(Protocol):
    """A command in a sandbox that was just handed out."""

    async def first_output(self, namespace: str, sandbox: str) -> float:
        """The moment, by the clock, at which the first byte of its output was here. Raises SandpoolError."""
        ...


class RoundTrip(Protocol):
    """A file that goes into a sandbox and comes back."""

    async def round_trip(self, namespace: str, sandbox: str) -> None:
        """Returns when what came back is what went in. Raises SandpoolError, also if it is not."""
        ...


@dataclass(frozen=True, slots=True)
class Work:
    dwell: float | None = 0.0  # seconds until it is released; None: not before the end
    timeout: float = 60.0  # seconds, from a claim's moment, until it counts as failed; and for each piece of work in it
    command: FirstOutput | None = None
    files: RoundTrip | None = None
