"""How a command ends."""

from __future__ import annotations

FAILED = 1
USAGE = 2
NOT_FOUND = 3
TIMED_OUT = 4


class Exit(Exception):
    """Ends the command with this code and, if there is one, this sentence on stderr."""

    def __init__(self, code: int, message: str = "") -> None:
        super().__init__(message)
        self.code = code
        self.message = message
