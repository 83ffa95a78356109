"""Starts a program: its pipes or its terminal, its environment, its own session."""

from __future__ import annotations

import fcntl
import os
import pty
import signal
import struct
import subprocess
import termios
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from sandpool.boxd.processes.spec import Size, Spec
from sandpool.wire.codes import Code, Refused

_DEFAULT = [signal.SIGPIPE, signal.SIGXFSZ]
"""Signals that Python itself ignores."""


@dataclass(slots=True)
class Spawned:
    """Open files are ours. With a terminal, stdin and stdout are the same file."""

    pid: int
    wait: Callable[[], int]  # for its end; the exit code, or minus a signal
    stdin: int | None
    stdout: int
    stderr: int | None


def spawn(spec: Spec, environment: Mapping[str, str], cwd: str | int) -> Spawned:
    env = {**environment, **spec.env}
    if spec.terminal is not None:
        env.setdefault("TERM", "xterm-256color")
        return _with_terminal(spec, env, cwd, spec.terminal)
    wants_stdin = spec.feeds or spec.stdin is not None
    with _refusing(spec):
        process = _piped(spec, env, cwd, wants_stdin=wants_stdin)
    assert process.stdout is not None
    assert process.stderr is not None
    stdin = _detached(process.stdin) if process.stdin is not None else None
    return Spawned(process.pid, process.wait, stdin, _detached(process.stdout), _detached(process.stderr))


def _with_terminal(spec: Spec, env: Mapping[str, str], cwd: str | int, size: Size) -> Spawned:
    """The first terminal that the leader of a new session opens becomes its own: so it is opened there, by name."""
    master, slave = pty.openpty()
    try:
        resize(master, size)
        opened = [(os.POSIX_SPAWN_OPEN, 0, os.ttyname(slave), os.O_RDWR, 0)]
        copied = [(os.POSIX_SPAWN_DUP2, 0, number) for number in (1, 2)]
        with _refusing(spec), _working_in(cwd):
            pid = os.posix_spawn(
                _found(spec.argv[0], env),
                spec.argv,
                env,
                file_actions=[*opened, *copied],
                setsid=True,
                setsigdef=_DEFAULT,
            )
    except BaseException:
        os.close(master)
        raise
    finally:
        os.close(slave)
    os.set_blocking(master, False)
    return Spawned(pid, lambda: os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), master, master, None)


@contextmanager
def _working_in(cwd: str | int) -> Iterator[None]:
    """A new process begins where this one is. Nothing else here depends on that: files are named by open folders."""
    here = os.open(".", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.chdir(cwd)
        try:
            yield
        finally:
            os.fchdir(here)
    finally:
        os.close(here)


def _piped(spec: Spec, env: Mapping[str, str], cwd: str | int, *, wants_stdin: bool) -> subprocess.Popen[bytes]:
    return subprocess.Popen(  # noqa: S603  # running what the client asks for is what it is for
        spec.argv,
        env=env,
        cwd=cwd if isinstance(cwd, str) else f"/proc/self/fd/{cwd}",
        stdin=subprocess.PIPE if wants_stdin else subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
        pass_fds=(cwd,) if isinstance(cwd, int) else (),
        executable=_found(spec.argv[0], env),
    )


@contextmanager
def _refusing(spec: Spec) -> Iterator[None]:
    """What the kernel says against it, in the client's words."""
    program = spec.argv[0]
    try:
        yield
    except FileNotFoundError:
        where = spec.cwd or "the working folder"
        raise Refused(Code.NOT_FOUND, f"no such program or folder: {program!r} in {where!r}") from None
    except NotADirectoryError:
        raise Refused(Code.NOT_FOUND, f"cwd {spec.cwd!r} is not a folder") from None
    except PermissionError:
        raise Refused(Code.DENIED, f"{program!r} may not be executed") from None
    except BlockingIOError:
        raise Refused(Code.EXHAUSTED, "the sandbox has no room for another process; end some") from None
    except OSError as error:
        raise Refused(Code.INTERNAL, f"{program!r} could not be started: {error.strerror or error}") from None


def _found(name: str, env: Mapping[str, str]) -> str:
    """By the PATH that the program will have, not by ours."""
    if "/" in name:
        return name
    for folder in (env.get("PATH") or os.defpath).split(":"):
        candidate = os.path.join(folder or ".", name)
        if os.access(candidate, os.X_OK) and not os.path.isdir(candidate):
            return candidate
    raise FileNotFoundError(name)


def _detached(stream: object) -> int:
    """The file descriptor alone: the object would close it when it is collected."""
    kept = os.dup(stream.fileno())  # type: ignore[attr-defined]
    stream.close()  # type: ignore[attr-defined]
    os.set_blocking(kept, False)
    return kept


def resize(terminal: int, size: Size) -> None:
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", size.rows, size.cols, 0, 0))


def signal_number(name: object) -> int:
    """From a name like TERM or SIGTERM, or a number."""
    if isinstance(name, int) and not isinstance(name, bool) and 0 < name < signal.NSIG:
        return name
    if isinstance(name, str):
        full = name.upper() if name.upper().startswith("SIG") else f"SIG{name.upper()}"
        if full in signal.Signals.__members__:
            return signal.Signals[full].value
    raise Refused(Code.INVALID, f"{name!r} is no signal; use a name like TERM or a number")
