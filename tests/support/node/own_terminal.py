"""A program on a terminal of its own: what it shows, and what is typed. The terminal is real; only nobody looks at it."""

from __future__ import annotations

import fcntl
import os
import select
import struct
import subprocess
import termios
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

PATIENCE = 60.0


@dataclass(slots=True)
class OwnTerminal:
    process: subprocess.Popen[bytes]
    master: int
    slave: int
    seen: bytes = b""

    def type(self, text: str) -> None:
        os.write(self.master, text.encode())

    def until(self, words: str) -> str:
        """What was shown up to these words."""
        while words.encode() not in self.seen:
            assert select.select([self.master], [], [], PATIENCE)[0], f"it shows only {self.seen!r}"
            self.seen += os.read(self.master, 65536)
        shown, _, self.seen = self.seen.partition(words.encode())
        return shown.decode(errors="replace")

    def resize(self, columns: int, rows: int) -> None:
        """The kernel tells those in front of the terminal (SIGWINCH)."""
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    @property
    def modes(self) -> list[object]:
        return list(termios.tcgetattr(self.slave))

    def ended(self) -> int:
        """Its exit code; what it still shows is taken meanwhile, or it could not end."""
        while self.process.poll() is None:
            if select.select([self.master], [], [], 0.05)[0]:
                self.seen += os.read(self.master, 65536)
        return self.process.returncode


@contextmanager
def on_a_terminal(command: list[str], env: dict[str, str], columns: int = 80, rows: int = 24) -> Iterator[OwnTerminal]:
    master, slave = os.openpty()
    fcntl.ioctl(master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
    process = subprocess.Popen(
        command,
        stdin=slave,
        stdout=slave,
        stderr=slave,
        env=env,
        start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0) and None,
    )
    try:
        yield OwnTerminal(process, master, slave)
    finally:
        if process.poll() is None:
            process.kill()
        process.wait(30)
        os.close(master)
        os.close(slave)
