"""A program in a sandbox as if it ran here: its output on our stdout and stderr, our stdin for it, signals and the window's size too.

The main thread carries output. A second one waits for input, for room on the way (never more than a window ahead of what the
program has taken) and for signals, which Python writes into a pipe; so neither direction ever waits for the other.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from sandpool.cli.inside.program import Program
from sandpool.cli.inside.terminal import size
from sandpool.kube.errors import Unreachable
from sandpool.sdk._sync.links import WINDOW
from sandpool.sdk.answers import understood
from sandpool.sdk.errors import RouterError
from sandpool.sdk.values import Exit
from sandpool.wire.frames import Kind

FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)
PIECE = 1 << 16
GRACE = 5.0
"""Seconds for the second thread to end; one that a dead connection holds up ends with the connection, or with the process."""
_STOP, _TAKEN = 255, 0  # no signals have these numbers
_ENOUGH = 3


class Live:
    """`stdin` is a descriptor, or None for no input. `screen`: descriptors of which one may tell the size of the window."""

    def __init__(self, program: Program, stdin: int | None, *, screen: tuple[int, ...] = ()) -> None:
        self._program = program
        self._stdin = stdin
        self._screen = screen
        self._wake_read, self._wake_write = os.pipe()
        os.set_blocking(self._wake_write, False)
        os.set_blocking(self._wake_read, False)
        self._sent = self._taken = 0
        self._interrupts = 0

    def run(self) -> Exit:
        """Until the program has ended and everything was written."""
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

    # What it says

    def _show(self) -> Exit:
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
                case Kind.ERROR:  # it takes no more input; its end will follow
                    self._taken = -1
                    self._wake(_TAKEN)
                case Kind.EXIT:
                    return Exit.of(frame.value)
                case _:
                    pass

    # What it hears

    def _feed(self) -> None:
        try:
            while self._turn():
                pass
        except (Unreachable, RouterError):  # whoever reads output hears of it, too
            pass

    def _turn(self) -> bool:
        """One thing: a signal, room, or a piece of input. False at the end."""
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
                self._program.resize(*size(*self._screen))
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
            pass  # it is full of reasons to wake up

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
        """The pipe has it already. Who presses Ctrl-C again and again wants to leave, whatever the program does."""
        self._interrupts += number == signal.SIGINT
        if self._interrupts >= _ENOUGH:
            raise KeyboardInterrupt


def write(descriptor: int, data: bytes) -> None:
    """All of it, also where somebody made the descriptor non-blocking."""
    rest = memoryview(data)
    while rest:
        try:
            rest = rest[os.write(descriptor, rest) :]
        except BlockingIOError:
            select.select([], [descriptor], [])
