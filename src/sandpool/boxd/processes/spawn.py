"""Starts a program in its own session: pipes or a terminal, environment, working directory."""

from __future__ import annotations

import fcntl
import os
import pty
import signal
import struct
import termios
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from sandpool.boxd.processes.process_tree import MARK
from sandpool.boxd.processes.spec import Size, Spec
from sandpool.wire.codes import Code, Refused

_DEFAULT = [signal.SIGPIPE, signal.SIGXFSZ]
"""Signals that Python ignores; programs get the default action back."""


@dataclass(slots=True)
class Spawned:
    """The caller owns the descriptors. With a terminal, stdin and stdout are the same."""

    pid: int
    wait: Callable[[], int]  # blocks until it ends; the exit code, or minus the signal
    stdin: int | None
    stdout: int
    stderr: int | None
    mark: str  # inherited by everything that it starts


def spawn(spec: Spec, environment: Mapping[str, str], cwd: str | int, mark: str) -> Spawned:
    env = {**environment, **spec.env, MARK: mark}
    if spec.terminal is not None:
        env.setdefault("TERM", "xterm-256color")
        return _with_terminal(spec, env, cwd, spec.terminal)
    return _with_pipes(spec, env, cwd, wants_stdin=spec.feeds or spec.stdin is not None)


def _with_pipes(spec: Spec, env: Mapping[str, str], cwd: str | int, *, wants_stdin: bool) -> Spawned:
    ours: list[int] = []
    theirs: list[int] = []
    try:
        for number in (0, 1, 2) if wants_stdin else (1, 2):
            reading, writing = os.pipe()
            ours.append(reading if number else writing)
            theirs.append(writing if number else reading)
        *inputs, out, err = theirs
        first = (os.POSIX_SPAWN_DUP2, *inputs, 0) if inputs else (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0)
        pid = _started(spec, env, cwd, [first, (os.POSIX_SPAWN_DUP2, out, 1), (os.POSIX_SPAWN_DUP2, err, 2)])
    except BaseException:
        for fd in ours:
            os.close(fd)
        raise
    finally:
        for fd in theirs:
            os.close(fd)
    for fd in ours:
        os.set_blocking(fd, False)
    return Spawned(pid, _waiter(pid), ours[0] if wants_stdin else None, ours[-2], ours[-1], env[MARK])


def _with_terminal(spec: Spec, env: Mapping[str, str], cwd: str | int, size: Size) -> Spawned:
    """The first terminal that a new session leader opens becomes its controlling terminal: so it is opened in the child, by name."""
    master, slave = pty.openpty()
    try:
        resize(master, size)
        opened = [(os.POSIX_SPAWN_OPEN, 0, os.ttyname(slave), os.O_RDWR, 0)]
        copied = [(os.POSIX_SPAWN_DUP2, 0, number) for number in (1, 2)]
        pid = _started(spec, env, cwd, [*opened, *copied])
    except BaseException:
        os.close(master)
        raise
    finally:
        os.close(slave)
    os.set_blocking(master, False)
    return Spawned(pid, _waiter(pid), master, master, None, env[MARK])


def _started(spec: Spec, env: Mapping[str, str], cwd: str | int, files: list[tuple[object, ...]]) -> int:
    """Spawns the program and returns its pid. Our own descriptors are close-on-exec, as Python opens them."""
    with _refusing(spec), _working_in(cwd):
        program = _found(spec.argv[0], env)
        return os.posix_spawn(program, spec.argv, env, file_actions=files, setsid=True, setsigdef=_DEFAULT)


def _waiter(pid: int) -> Callable[[], int]:
    return lambda: os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


@contextmanager
def _working_in(cwd: str | int) -> Iterator[None]:
    """Changes the working directory, which the child inherits. Nothing else in boxd depends on it: files are reached through open directories."""
    here = os.open(".", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.chdir(cwd)
        try:
            yield
        finally:
            os.fchdir(here)
    finally:
        os.close(here)


@contextmanager
def _refusing(spec: Spec) -> Iterator[None]:
    """Turns errors of the start into Refused, with a message for the client."""
    program = spec.argv[0]
    try:
        yield
    except FileNotFoundError:
        words = f"command not found: {program!r} (or the interpreter in its first line)"
        raise Refused(Code.NO_PROGRAM, words) from None
    except NotADirectoryError:
        raise Refused(Code.NOT_FOUND, f"cwd {spec.cwd!r} is not a directory") from None
    except PermissionError:
        raise Refused(Code.DENIED, f"{program!r} is not executable") from None
    except BlockingIOError:
        raise Refused(Code.EXHAUSTED, "the sandbox has reached its limit of processes; end some") from None
    except OSError as error:
        raise Refused(Code.INTERNAL, f"{program!r} could not be started: {error.strerror or error}") from None


def _found(name: str, env: Mapping[str, str]) -> str:
    """Searches the PATH that the program will have, not ours."""
    if "/" in name:
        return name
    for directory in (env.get("PATH") or os.defpath).split(":"):
        candidate = os.path.join(directory or ".", name)
        if os.access(candidate, os.X_OK) and not os.path.isdir(candidate):
            return candidate
    raise FileNotFoundError(name)


def resize(terminal: int, size: Size) -> None:
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", size.rows, size.cols, 0, 0))


def signal_number(name: object) -> int:
    """The number of a signal, from a name like TERM or SIGTERM, or a number."""
    if isinstance(name, int) and not isinstance(name, bool) and 0 < name < signal.NSIG:
        return name
    if isinstance(name, str):
        full = name.upper() if name.upper().startswith("SIG") else f"SIG{name.upper()}"
        if full in signal.Signals.__members__:
            return signal.Signals[full].value
    raise Refused(Code.INVALID, f"{name!r} is not a signal; use a name like TERM or a number")
