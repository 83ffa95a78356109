"""The output of a command: data on stdout, messages and progress on stderr.

Progress shows only what takes longer than a second: a line that changes on a terminal, one line elsewhere.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Literal, Protocol

from sandpool.cli.output.table import plain

if TYPE_CHECKING:
    from rich.status import Status

Colour = Literal["auto", "always", "never"]
Update = Callable[[str], None]
PATIENCE = 1.0
"""Seconds before progress is shown."""


class Console(Protocol):
    @property
    def color(self) -> bool:
        """Whether data may have colors."""
        ...

    def write(self, text: str) -> None:
        """Writes data to stdout, unchanged."""
        ...

    def say(self, text: str) -> None:
        """Writes one line to stderr."""
        ...

    def progress(self, text: str) -> AbstractContextManager[Update]:
        """Shows `text` while something takes long; the update function replaces it."""
        ...


class Terminal:
    """stdout and stderr of this process."""

    def __init__(self, color: Colour = "auto") -> None:
        self._color = color

    @property
    def color(self) -> bool:
        if self._color != "auto":
            return self._color == "always"
        return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"

    def write(self, text: str) -> None:
        sys.stdout.write(text)
        sys.stdout.flush()

    def say(self, text: str) -> None:
        print(plain(text), file=sys.stderr, flush=True)

    @contextmanager
    def progress(self, text: str) -> Iterator[Update]:
        shown = _Spinner(text) if sys.stderr.isatty() else _Line(text, self.say)
        timer = threading.Timer(PATIENCE, shown.start)
        timer.daemon = True
        timer.start()
        try:
            yield shown.update
        finally:
            timer.cancel()
            timer.join()
            shown.stop()


class _Line:
    """Progress without a terminal: one line, once."""

    def __init__(self, text: str, say: Callable[[str], None]) -> None:
        self._text, self._say = text, say

    def start(self) -> None:
        self._say(self._text)

    def update(self, text: str) -> None:
        self._text = text

    def stop(self) -> None: ...


class _Spinner:
    def __init__(self, text: str) -> None:
        self._text = text
        self._status: Status | None = None
        self._lock = threading.Lock()

    def start(self) -> None:
        from rich.console import Console as RichConsole  # imported late, because it is slow
        from rich.status import Status
        from rich.text import Text

        with self._lock:
            self._status = Status(Text(self._text), console=RichConsole(stderr=True))
            self._status.start()

    def update(self, text: str) -> None:
        from rich.text import Text

        with self._lock:
            self._text = text
            if self._status is not None:
                self._status.update(Text(text))

    def stop(self) -> None:
        with self._lock:
            if self._status is not None:
                self._status.stop()
