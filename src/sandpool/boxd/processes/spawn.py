"""Starts a program: its pipes or its terminal, its environment, its own session."""

from __future__ import annotations

import fcntl
import os
import pty
import signal
import struct
import subprocess
import termios
from collections.abc import Mapping
from dataclasses import dataclass

from sandpool.boxd.processes.spec import Size, Spec
from sandpool.wire.codes import Code, Refused


@dataclass(slots=True)
class Spawned:
    """Open files are ours. With a terminal, stdin and stdout are the same file."""

    process: subprocess.Popen[bytes]
    stdin: int | None
    stdout: int
    stderr: int | None

    @property
    def pid(self) -> int:
        return self.process.pid


def spawn(spec: Spec, environment: Mapping[str, str], cwd: str | int) -> Spawned:
    env = {**environment, **spec.env}
    if spec.terminal is not None:
        env.setdefault("TERM", "xterm-256color")
        return _with_terminal(spec, env, cwd, spec.terminal)
    wants_stdin = spec.feeds or spec.stdin is not None
    process = _open(
        spec, env, cwd, stdin=subprocess.PIPE if wants_stdin else subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stderr is not None
    stdin = _detached(process.stdin) if process.stdin is not None else None
    return Spawned(process, stdin, _detached(process.stdout), _detached(process.stderr))


def _with_terminal(spec: Spec, env: Mapping[str, str], cwd: str | int, size: Size) -> Spawned:
    master, slave = pty.openpty()
    try:
        resize(master, size)
        process = _open(spec, env, cwd, stdin=slave, stdout=slave, stderr=slave, controlling=True)
    except BaseException:
        os.close(master)
        raise
    finally:
        os.close(slave)
    os.set_blocking(master, False)
    return Spawned(process, master, master, None)


def _open(
    spec: Spec,
    env: Mapping[str, str],
    cwd: str | int,
    *,
    stdin: int,
    stdout: int,
    stderr: int,
    controlling: bool = False,
) -> subprocess.Popen[bytes]:
    place = cwd if isinstance(cwd, str) else f"/proc/self/fd/{cwd}"
    try:
        return subprocess.Popen(  # noqa: S603  # running what the client asks for is what it is for
            spec.argv,
            env=env,
            cwd=place,
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            start_new_session=True,
            pass_fds=(cwd,) if isinstance(cwd, int) else (),
            preexec_fn=_take_terminal if controlling else None,
            executable=_found(spec.argv[0], env),
        )
    except FileNotFoundError:
        raise Refused(
            Code.NOT_FOUND, f"no such program or folder: {spec.argv[0]!r} in {spec.cwd or 'the working folder'!r}"
        ) from None
    except NotADirectoryError:
        raise Refused(Code.NOT_FOUND, f"cwd {spec.cwd!r} is not a folder") from None
    except PermissionError:
        raise Refused(Code.DENIED, f"{spec.argv[0]!r} may not be executed") from None
    except BlockingIOError:
        raise Refused(Code.EXHAUSTED, "the sandbox has no room for another process; end some") from None
    except OSError as error:
        raise Refused(Code.INTERNAL, f"{spec.argv[0]!r} could not be started: {error.strerror or error}") from None


def _found(name: str, env: Mapping[str, str]) -> str:
    """By the PATH that the program will have, not by ours."""
    if "/" in name:
        return name
    for folder in (env.get("PATH") or os.defpath).split(":"):
        candidate = os.path.join(folder or ".", name)
        if os.access(candidate, os.X_OK) and not os.path.isdir(candidate):
            return candidate
    raise FileNotFoundError(name)


def _take_terminal() -> None:
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


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
