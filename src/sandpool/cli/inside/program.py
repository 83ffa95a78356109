"""A program in a sandbox over one connection: what it says comes as frames, what it hears goes the same way. Hanging up ends it.

Signals travel beside that connection: input that the program does not read must not hold them up.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

from sandpool.cli.exits import NOT_EXECUTABLE, NOT_THERE, OURS, Exit
from sandpool.sdk._sync.data_plane import DataPlane
from sandpool.sdk._sync.links import SocketLink
from sandpool.sdk.command import shown
from sandpool.sdk.errors import SandboxError
from sandpool.wire.codes import Code
from sandpool.wire.frames import Frame, Kind, encode
from sandpool.wire.paths import PROCESSES

_CODES = {Code.NO_PROGRAM.word: NOT_THERE, Code.NOT_FOUND.word: NOT_THERE, Code.DENIED.word: NOT_EXECUTABLE}
ANSWER = 30.0


@dataclass(slots=True)
class Program:
    plane: DataPlane
    link: SocketLink
    argv: tuple[str, ...]
    id: str = field(default="", init=False)

    def next(self) -> Frame:
        """Never the first one, which `started` has taken. Raises Exit where the connection is lost."""
        frame = self.link.next()
        if frame is None:
            raise Exit(
                OURS, f"{self.plane}: the connection ended while {shown(self.argv)!r} ran, which ended it; run it again"
            )
        return frame

    def feed(self, data: bytes) -> None:
        self.link.send(Kind.STDIN, data)

    def end_input(self) -> None:
        self.link.send(Kind.STDIN_END)

    def resize(self, columns: int, rows: int) -> None:
        self.link.send(Kind.RESIZE, encode({"cols": columns, "rows": rows}))

    def signal(self, number: int) -> None:
        """To its whole group. A program that has just ended hears nothing any more."""
        body = json.dumps({"signal": number}).encode()
        try:
            self.plane.request("POST", f"{PROCESSES}/{quote(self.id, safe='')}/signal", body=body, timeout=ANSWER)
        except SandboxError:
            pass


@contextmanager
def started(plane: DataPlane, argv: tuple[str, ...], spec: dict[str, Any]) -> Iterator[Program]:
    """Runs it. Ends with 127 or 126 where it cannot be run. Leaving ends it, if it has not ended."""
    link = SocketLink.open(plane, f"{PROCESSES}/start")
    try:
        link.send(Kind.START, encode(spec))
        program = Program(plane, link, argv)
        first = program.next()
        if first.kind is Kind.ERROR:
            code = _CODES.get(str(first.value.get("code")), OURS)
            why = str(first.value.get("message", "it was refused"))
            raise Exit(code, f"{plane}: {why}; {_hint(code, why)}")
        program.id = str(first.value.get("id", ""))
        yield program
    finally:
        link.close()


def _hint(code: int, why: str) -> str:
    if why.startswith("cwd"):
        return "name a folder of the sandbox with --cwd"
    if code == NOT_THERE:
        return "name a program that the sandbox has; a line for a shell is run by: sh -c 'LINE'"
    if code == NOT_EXECUTABLE:
        return "make it executable with chmod +x, or run it by its interpreter"
    return "correct the command, or try again"
