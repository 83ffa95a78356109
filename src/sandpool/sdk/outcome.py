"""How a command ended: its captured output, and the error for `check`. Pure."""

from __future__ import annotations

from collections import deque

from sandpool.sdk.command import shown
from sandpool.sdk.errors import (
    CommandError,
    CommandFailed,
    CommandLost,
    CommandNotFound,
    CommandTimeout,
    OutOfMemory,
    ProcessNotFound,
    RouterError,
)
from sandpool.sdk.values import Captured, Result
from sandpool.wire.codes import Code

NOT_THERE = 127
"""The exit code of a shell for a command that does not exist."""
HUNG_UP = 502
"""The status of the router if a sandbox closed the connection without an answer, or cannot be reached."""
_LINES = 10
_LONGEST = 2000


def checked(result: Result, sandbox: str) -> Result:
    """The result, if the command succeeded. Otherwise raises CommandTimeout, CommandNotFound or CommandFailed with its last lines."""
    if result.ok:
        return result
    words = last_lines(result.stderr) or last_lines(result.stdout)
    said = f"; it said last:\n{words}" if words else "; it said nothing"
    what = f"{sandbox}: {shown(result.command)!r}"
    if result.timed_out:
        message = f"{what} was ended because its time was up{said}"
        raise CommandTimeout(message, result.out, result.err)
    output = result.exit_code, result.out, result.err
    if result.out_of_memory:
        raise OutOfMemory(f"{what} was ended because the sandbox's memory was used up{said}", *output)
    how = f"by signal {result.signal}" if result.signal else f"with exit code {result.exit_code}"
    kind = CommandNotFound if isinstance(result.command, str) and result.exit_code == NOT_THERE else CommandFailed
    raise kind(f"{what} ended {how}{said}", *output)


def last_lines(text: str) -> str:
    """Without control characters, because messages may be printed on a terminal."""
    lines = "\n".join(text.rstrip().splitlines()[-_LINES:])[-_LONGEST:]
    return "".join(letter if letter.isprintable() or letter in "\n\t" else " " for letter in lines)


def command_error(error: RouterError, *, process: bool = False) -> CommandError:
    """The error for a refusal of the daemon: to start a command or, with `process`, about a running one."""
    if process and error.status == 404:
        return ProcessNotFound(f"{error}; `processes()` lists those that are known")
    if error.status == HUNG_UP:
        return CommandLost(f"{error}; whether it ran is not known")
    return refused(error.code, str(error))


def refused(code: str, message: str) -> CommandError:
    """The error for a command that the daemon did not start."""
    if code == Code.NO_PROGRAM.word:
        return CommandNotFound(f"{message}; name a program that the sandbox has, or give a shell's line as text")
    return CommandError(message)


_BLOCK = 64 * 1024


class Capture:
    """Keeps output within a limit: the beginning and the newest part, and how much is missing between them."""

    def __init__(self, limit: int) -> None:
        self._head_limit = limit - limit // 2
        self._tail_limit = limit // 2
        self._block = min(_BLOCK, limit // 16)  # smaller ones share one: each alone costs much more
        self.head: deque[bytes | bytearray] = deque()
        self._head_size = 0
        self.tail: deque[bytes | bytearray] = deque()
        self._tail_size = 0
        self._left_out = 0

    def add(self, data: bytes) -> None:
        if not data:
            return  # empty pieces take no memory
        room = self._head_limit - self._head_size
        if room > 0:
            self._append(self.head, data[:room])
            self._head_size += min(room, len(data))
            data = data[room:]
        if data:
            self._append(self.tail, data)
            self._tail_size += len(data)
            self._trim()

    def _append(self, blocks: deque[bytes | bytearray], data: bytes) -> None:
        if len(data) >= self._block:
            blocks.append(data)
            return
        last = blocks[-1] if blocks else None
        if isinstance(last, bytearray) and len(last) + len(data) <= self._block:
            last += data
        else:
            blocks.append(bytearray(data))

    def _trim(self) -> None:
        """Whole blocks go first; the oldest that stays is cut only at the end, in `done`."""
        while self.tail and self._tail_size - len(self.tail[0]) >= self._tail_limit:
            gone = len(self.tail.popleft())
            self._tail_size -= gone
            self._left_out += gone

    def done(self) -> Captured:
        tail = b"".join(self.tail)
        surplus = max(0, len(tail) - self._tail_limit)
        return Captured(b"".join(self.head), tail[surplus:], self._left_out + surplus)
