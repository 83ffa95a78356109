"""Exit codes, and the exception that ends a command with one."""

from __future__ import annotations

FAILED = 1
USAGE = 2
NOT_FOUND = 3
TIMED_OUT = 4
OUT_OF_MEMORY = 75
"""Of `up`: the system gave it no more memory. As EX_TEMPFAIL of sysexits.h: it may well work after a restart."""
OUTLASTED = 124
"""The command in the sandbox took longer than --time-limit, as timeout(1) has it."""
OURS = 125
"""Of `run`, `exec` and `shell`: sandpool itself failed, not the command."""
NOT_EXECUTABLE, NOT_THERE = 126, 127
"""As shells exit if a program cannot be executed, or does not exist."""
SIGNALLED = 128
"""Plus the number of the signal."""
INTERRUPTED = 130


class Exit(Exception):
    """Ends the command with this exit code and prints the message, if any, on stderr."""

    def __init__(self, code: int, message: str = "") -> None:
        super().__init__(message)
        self.code = code
        self.message = message
