"""The root of every error that this package raises on purpose, and what goes wrong on a node."""

from __future__ import annotations


class SandpoolError(Exception):
    """Root of every error that this package raises on purpose."""


class NodeError(SandpoolError):
    """Something that a pod needs could not be had. `reason` is one word that the pod's status shows, `message` says what and
    what to do. It is tried again, later each time."""

    def __init__(self, reason: str, message: str) -> None:
        message = message.removeprefix(f"{reason}: ")  # of an error that was passed on as a whole
        super().__init__(f"{reason}: {message}")
        self.reason = reason
        self.message = message
