"""Progress on stderr: a line that changes on a terminal, plain lines elsewhere. It reads a tally and never waits."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TextIO

from sandpool.load.driver import Tally
from sandpool.load.run import Watcher

_SHOWN = 0.2  # seconds between two updates on a terminal
_SAID = 5.0  # and elsewhere


class Quiet(Watcher):
    @asynccontextmanager
    async def showing(self) -> AsyncIterator[None]:
        yield


class Lines(Quiet):
    """One line for each phase, and one now and then while claims are driven."""

    def __init__(self, out: TextIO, every: float = _SAID) -> None:
        self._out = out
        self._every = every
        self._tally: Tally | None = None
        self._phase = ""

    def said(self, phase: str) -> None:
        self._phase = phase
        print(phase, file=self._out, flush=True)

    def follows(self, tally: Tally) -> None:
        self._tally = tally

    @asynccontextmanager
    async def showing(self) -> AsyncIterator[None]:
        task = asyncio.create_task(self._show())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            self._end()

    async def _show(self) -> None:
        last = ""
        while True:
            await asyncio.sleep(self._every)
            text = self._text()
            if text != last:
                self._tell(text)
            last = text

    def _text(self) -> str:
        return tally_text(self._tally) if self._tally is not None else ""

    def _tell(self, text: str) -> None:
        if text:
            print(text, file=self._out, flush=True)

    def _end(self) -> None:
        pass


class Live(Lines):
    """A line of a terminal that changes."""

    def __init__(self, out: TextIO) -> None:
        from rich.console import Console
        from rich.status import Status

        super().__init__(out, _SHOWN)
        self._status = Status("", console=Console(file=out))
        self._status.start()

    def said(self, phase: str) -> None:
        self._phase = phase
        self._tell(self._text())

    def _tell(self, text: str) -> None:
        from rich.text import Text

        self._status.update(Text(f"{self._phase}  {text}" if text else self._phase))

    def _end(self) -> None:
        self._status.stop()


def tally_text(tally: Tally) -> str:
    if not tally.planned:
        return ""
    parts = [f"{tally.ready} of {tally.planned} ready", f"{tally.sent} sent"]
    counted = {
        "failed": tally.failed,
        "throttled": tally.throttled,
        "turned away": tally.turned_away,
        "released": tally.released,
    }
    for name, number in counted.items():
        if number:
            parts.append(f"{number} {name}")
    return ", ".join(parts)


def progress(quiet: bool = False) -> Quiet:
    if quiet:
        return Quiet()
    return Live(sys.stderr) if sys.stderr.isatty() else Lines(sys.stderr)
