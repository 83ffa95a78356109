"""Attaches a program in a sandbox to this terminal: stdin, stdout, stderr, signals and window size.

The main thread copies output. A second thread waits for input, for room on the connection (never more than a window ahead of what the
program has taken) and for signals, which Python writes into a pipe; so neither direction ever waits for the other.
"""

from __future__ import annotations

import json
import os
import select
import signal
import sys
import termios
import threading
import tty
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType
from typing import Any
from urllib.parse import quote

from sandpool.cli.exits import NOT_EXECUTABLE, NOT_THERE, OURS, Exit
from sandpool.kube.errors import Unreachable
from sandpool.sdk._sync.data_plane import DataPlane
from sandpool.sdk._sync.frame_streams import WINDOW, WebSocketFrames
from sandpool.sdk.answers import understood
from sandpool.sdk.command import shown
from sandpool.sdk.errors import RouterError, SandboxError
from sandpool.sdk.values import Exit as ProgramExit
from sandpool.wire.codes import Code
from sandpool.wire.frames import Frame, Kind, encode
from sandpool.wire.paths import PROCESSES

STANDARD = (80, 24)


def terminal_size(*descriptors: int) -> tuple[int, int]:
    """Columns and rows of the first of these that is a terminal; 80 by 24 if none is."""
    for descriptor in descriptors:
        try:
            columns, rows = os.get_terminal_size(descriptor)
        except OSError:
            continue
        if columns and rows:
            return columns, rows
    return STANDARD


@contextmanager
def raw_mode(descriptor: int) -> Iterator[None]:
    """Raw mode: every key is sent, and the terminal in the sandbox interprets Ctrl-C. Does nothing without a terminal."""
    if not os.isatty(descriptor):
        yield
        return
    before = termios.tcgetattr(descriptor)
    tty.setraw(descriptor, termios.TCSADRAIN)
    try:
        yield
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


_CODES = {Code.NO_PROGRAM.word: NOT_THERE, Code.NOT_FOUND.word: NOT_THERE, Code.DENIED.word: NOT_EXECUTABLE}
ANSWER = 30.0


@dataclass(slots=True)
class Program:
    plane: DataPlane
    link: WebSocketFrames
    argv: tuple[str, ...]
    id: str = field(default="", init=False)

    def next(self) -> Frame:
        """The next frame after that of `started`. Exits if the connection is lost."""
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
        """Sends a signal to the process group. A program that has just ended does not get it."""
        body = json.dumps({"signal": number}).encode()
        try:
            self.plane.request("POST", f"{PROCESSES}/{quote(self.id, safe='')}/signal", body=body, timeout=ANSWER)
        except SandboxError:
            pass


@contextmanager
def started(plane: DataPlane, argv: tuple[str, ...], spec: dict[str, Any]) -> Iterator[Program]:
    """Starts it. Exits with 127 or 126 if it cannot be executed. Leaving the context kills it if it still runs."""
    link = WebSocketFrames.open(plane, f"{PROCESSES}/start")
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
        return "name a directory of the sandbox with --cwd"
    if code == NOT_THERE:
        return "name a program that the sandbox has; a line for a shell is run by: sh -c 'LINE'"
    if code == NOT_EXECUTABLE:
        return "make it executable with chmod +x, or run it by its interpreter"
    return "correct the command, or try again"


FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)
PIECE = 1 << 16
GRACE = 5.0
"""Seconds for the second thread to end; one that a dead connection blocks ends with the connection, or with the process."""
_STOP, _TAKEN = 255, 0  # no signals have these numbers
_ENOUGH = 3


class Attachment:
    """`stdin` is a descriptor, or None for no input. `screen`: descriptors that may be a terminal, for the window size."""

    def __init__(self, program: Program, stdin: int | None, *, screen: tuple[int, ...] = ()) -> None:
        self._program = program
        self._stdin = stdin
        self._screen = screen
        self._wake_read, self._wake_write = os.pipe()
        os.set_blocking(self._wake_write, False)
        os.set_blocking(self._wake_read, False)
        self._sent = self._taken = 0
        self._interrupts = 0

    def run(self) -> ProgramExit:
        """Runs until the program has ended and all its output was written."""
        feeder = threading.Thread(target=self._feed, name="feeder", daemon=True)
        try:
            with self._signals():
                feeder.start()
                try:
                    return self._show()
                finally:
                    self._wake(_STOP)
                    feeder.join(GRACE)
        finally:
            if not feeder.is_alive():
                os.close(self._wake_read)
                os.close(self._wake_write)

    # Output

    def _show(self) -> ProgramExit:
        sys.stdout.flush()
        while True:
            frame = self._program.next()
            match frame.kind:
                case Kind.STDOUT:
                    write(1, frame.data)
                case Kind.STDERR:
                    write(2, frame.data)
                case Kind.TAKEN:
                    with understood():
                        self._taken = int(frame.value.get("stdin", 0))
                    self._wake(_TAKEN)
                case Kind.ERROR:  # it reads no more input; its exit follows
                    self._taken = -1
                    self._wake(_TAKEN)
                case Kind.EXIT:
                    return ProgramExit.of(frame.value)
                case _:
                    pass

    # Input and signals

    def _feed(self) -> None:
        try:
            while self._turn():
                pass
        except (Unreachable, RouterError):  # the reader of output notices it, too
            pass

    def _turn(self) -> bool:
        """Handles one event: a signal, room in the window, or a piece of input. False at the end."""
        poll = select.poll()
        poll.register(self._wake_read, select.POLLIN)
        if self._stdin is not None and self._taken >= 0 and self._sent - self._taken < WINDOW:
            poll.register(self._stdin, select.POLLIN)
        for descriptor, _ in poll.poll():
            if descriptor == self._wake_read:
                heard = os.read(self._wake_read, 4096)
                if _STOP in heard:
                    return False
                self._obey(heard)
            else:
                self._pass_on()
        return True

    def _obey(self, heard: bytes) -> None:
        for number in dict.fromkeys(heard):
            if number == signal.SIGWINCH:
                self._program.resize(*terminal_size(*self._screen))
            elif number in FORWARDED:
                self._program.signal(number)

    def _pass_on(self) -> None:
        assert self._stdin is not None
        try:
            data = os.read(self._stdin, PIECE)
        except BlockingIOError:
            return
        except OSError:  # a terminal that hung up
            data = b""
        if data:
            self._program.feed(data)
            self._sent += len(data)
        else:
            self._stdin = None
            self._program.end_input()

    # Waking

    def _wake(self, number: int) -> None:
        try:
            os.write(self._wake_write, bytes((number,)))
        except BlockingIOError:
            pass  # the pipe is full, so the thread wakes up anyway

    @contextmanager
    def _signals(self) -> Iterator[None]:
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        watched = (*FORWARDED, signal.SIGWINCH) if self._screen else FORWARDED
        before: dict[int, Any] = {number: signal.signal(number, self._heard) for number in watched}
        pipe = signal.set_wakeup_fd(self._wake_write, warn_on_full_buffer=False)
        try:
            yield
        finally:
            signal.set_wakeup_fd(pipe)
            for number, handler in before.items():
                signal.signal(number, handler)

    def _heard(self, number: int, _: FrameType | None) -> None:
        """The signal is in the pipe already. Repeated Ctrl-C leaves, whatever the program does."""
        self._interrupts += number == signal.SIGINT
        if self._interrupts >= _ENOUGH:
            raise KeyboardInterrupt


def write(descriptor: int, data: bytes) -> None:
    """Writes all data, even if another program made the descriptor non-blocking."""
    rest = memoryview(data)
    while rest:
        try:
            rest = rest[os.write(descriptor, rest) :]
        except BlockingIOError:
            select.select([], [descriptor], [])
