"""The terminal that this process stands in: its size, and raw mode, which is undone whatever happens."""

from __future__ import annotations

import os
import termios
import tty
from collections.abc import Iterator
from contextlib import contextmanager

STANDARD = (80, 24)


def size(*descriptors: int) -> tuple[int, int]:
    """Columns and rows of the first of these that is a terminal; 80 by 24 where none is."""
    for descriptor in descriptors:
        try:
            columns, rows = os.get_terminal_size(descriptor)
        except OSError:
            continue
        if columns and rows:
            return columns, rows
    return STANDARD


@contextmanager
def raw(descriptor: int) -> Iterator[None]:
    """Every key goes through as it is: the terminal in the sandbox knows what Ctrl-C means. Where there is no terminal, nothing."""
    if not os.isatty(descriptor):
        yield
        return
    before = termios.tcgetattr(descriptor)
    tty.setraw(descriptor, termios.TCSADRAIN)
    try:
        yield
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)
