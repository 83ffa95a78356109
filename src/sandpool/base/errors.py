"""The base class of every error that this package raises on purpose, and the error of a node."""

from __future__ import annotations


class SandpoolError(Exception):
    """Root of every error that this package raises on purpose."""


class NodeError(SandpoolError):
    """Something that a pod needs is not available. `reason` is one word for the pod's status; `message` says what is missing and what to do.
    The operation is retried with growing delays."""

    def __init__(self, reason: str, message: str) -> None:
        message = message.removeprefix(f"{reason}: ")  # present if `message` is the text of another NodeError
        super().__init__(f"{reason}: {message}")
        self.reason = reason
        self.message = message
