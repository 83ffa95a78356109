"""What a run does with a claim once it is Ready, in this order: a command, a file, a dwell time, release."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


class FirstOutput(Protocol):
    """A command in a sandbox that was just handed out."""

    async def first_output(self, namespace: str, sandbox: str) -> float:
        """The time at which the first byte of its output arrived. Raises SandpoolError."""
        ...


class RoundTrip(Protocol):
    """A file that is written to a sandbox and read back."""

    async def round_trip(self, namespace: str, sandbox: str) -> None:
        """Returns when the same content was read back. Raises SandpoolError, also if it differs."""
        ...


@dataclass(frozen=True, slots=True)
class Work:
    dwell: float | None = 0.0  # seconds until it is released; None: not before the end
    timeout: float = 60.0  # seconds, from a claim's moment, until it counts as failed; and for each piece of work in it
    command: FirstOutput | None = None
    files: RoundTrip | None = None
