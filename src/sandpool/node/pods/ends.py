"""How a container's end is told. Pure."""

from __future__ import annotations

import signal
from datetime import datetime

from sandpool.base.errors import NodeError
from sandpool.node.backend import SANDBOX_LOST, Exit
from sandpool.node.runtimes.contract import Ended

MESSAGE_BYTES = 4096
_CANNOT_RUN = ("StartError", "ContainerCannotRun")


def exit_of(ended: Ended, started_at: datetime, now: datetime, message: str) -> Exit:
    """What the container said itself goes before what the runtime says, unless it did not end by itself. Codes come from outside: one byte, or a signal's."""
    reason = "OOMKilled" if ended.oom else SANDBOX_LOST if ended.lost else ""
    code = ended.code if 0 <= ended.code <= 255 else 255
    words = ended.message if ended.lost else message or ended.message
    return Exit(code, max(now, started_at), started_at, ended.signal, reason, words)


def start_exit(error: NodeError, now: datetime) -> Exit | None:
    """A command that cannot be started is an end, as in Kubernetes; other errors are waited out (None)."""
    if error.reason not in _CANNOT_RUN:
        return None
    return Exit(128, now, now, 0, error.reason, error.message)


def stop_signal(name: str) -> int:
    """As an image says it: SIGINT, INT or 2. What is no signal is SIGTERM."""
    text = name.strip().upper()
    if text.isdecimal():
        return int(text) if 0 < int(text) <= 64 else signal.SIGTERM
    text = text if text.startswith("SIG") else f"SIG{text}"
    if text.startswith("SIGRTMIN+") and text[9:].isdecimal():
        return min(64, 34 + int(text[9:]))
    return int(signal.Signals[text]) if text in signal.Signals.__members__ else signal.SIGTERM
