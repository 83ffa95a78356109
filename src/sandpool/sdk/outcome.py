"""What the end of a command means for whoever asked for success. Pure."""

from __future__ import annotations

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
from sandpool.sdk.values import Result
from sandpool.wire.codes import Code

NOT_THERE = 127
"""The exit code with which a shell says that there is no such command."""
HUNG_UP = 502
"""The status with which the router says that a sandbox ended the connection instead of answering, or cannot be reached."""
_LINES = 10
_LONGEST = 2000


def checked(result: Result, sandbox: str) -> Result:
    """The result, if it is a success. CommandTimeout, CommandNotFound or CommandFailed if not, with the last lines that explain it."""
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
    """Without control characters: a message may end on somebody's terminal."""
    lines = "\n".join(text.rstrip().splitlines()[-_LINES:])[-_LONGEST:]
    return "".join(letter if letter.isprintable() or letter in "\n\t" else " " for letter in lines)


def command_error(error: RouterError, *, process: bool = False) -> CommandError:
    """A refusal of the daemon to start something or, with `process`, about one that was started."""
    if process and error.status == 404:
        return ProcessNotFound(f"{error}; `processes()` lists those that are known")
    if error.status == HUNG_UP:
        return CommandLost(f"{error}; whether it ran is not known")
    return refused(error.code, str(error))


def refused(code: str, message: str) -> CommandError:
    """What a word of the daemon's means for a command that it did not start."""
    if code == Code.NO_PROGRAM.word:
        return CommandNotFound(f"{message}; name a program that the sandbox has, or give a shell's line as text")
    return CommandError(message)
