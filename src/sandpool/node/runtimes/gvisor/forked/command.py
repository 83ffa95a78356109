"""Runs runsc once: forks a process that builds the root it needs, drops its privileges and execs runsc. Also translates runsc's errors.

The log of runsc goes to a file in memory, separate from the output of the sandboxed program.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
import termios
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from sandpool.node.runtimes.gvisor.forked import runsc_root
from sandpool.node.runtimes.namespaces.forked import cgroups, confine
from sandpool.node.runtimes.namespaces.forked.frames import Refused
from sandpool.node.runtimes.namespaces.forked.layers import Ids

MOST_CHARS = 1000
START_ERRORS = ("error finding executable", "no such file or directory", "permission denied", "exec format error",
         "is a directory", "not a directory", "invalid argument: not executable", "failed to load")  # fmt: skip


def last_log_entry(log: str) -> dict[str, object]:
    """The last entry of a log of concatenated JSON objects."""
    decoder, found, rest = json.JSONDecoder(), {}, log.strip()
    while rest:
        try:
            value, end = decoder.raw_decode(rest)
        except ValueError:
            break
        if isinstance(value, dict):
            found = value
        rest = rest[end:].lstrip()
    return found


def runsc_error(code: int, log: str) -> list[str]:
    """Reason and message of a failure that no container command caused."""
    words = last_log_entry(log)
    match words.get("refused"):
        case [str(reason), str(message)]:
            return [reason, message]
    reported = words.get("msg")
    return ["Gvisor", str(reported)[-MOST_CHARS:] if reported else f"runsc ended with code {code} and said nothing"]


def start_error(code: int, log: str, argv: Sequence[str], cwd: str = "") -> list[str]:
    """Reason and message of a command that could not be started."""
    reason, message = runsc_error(code, log)
    if reason != "Gvisor" or not argv:
        return [reason, message]
    name = argv[0]
    if "error finding executable" in message or "no such file or directory" in message:
        if "error finding executable" not in message and cwd and f'"{cwd}"' in message:
            return ["StartError", f"cannot enter the working directory {cwd!r}: no such file or directory"]
        return ["StartError", f"no such file or directory: {name!r}"]
    if "permission denied" in message:
        return ["StartError", f"permission denied: {name!r} is not executable"]
    if "exec format error" in message:
        return ["StartError", f"exec format error: {name!r} is no program for this machine"]
    if any(words in message for words in START_ERRORS):
        return ["StartError", f"cannot start {name!r}: {message}"]
    return ["CreateContainerError", message]


def dial_error(port: int, code: int, log: str) -> list[str]:
    _, message = runsc_error(code, log)
    if "refused" in message:
        return ["ConnectionRefused", f"nobody listens on port {port} of the sandbox"]
    return ["ConnectionRefused", f"port {port} of the sandbox cannot be reached: {message}"]


MOST_SAID = 256 * 1024
LOG, FIRST_GIVEN = 9, 10  # file descriptors in runsc: its log, and the first of those passed into the sandbox
OOM_SCORE = 500
HIGH = 100
FAILED = 125  # exit code if this process fails before exec; its log contains the refusal

Request = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Place:
    """What all runsc commands of a sandbox have in common."""

    directory: str
    state: str
    runsc: str
    ids: Ids
    userns: int
    ranged: bool
    flags: Sequence[str]


@dataclass(slots=True)
class Command:
    """A running process. `done` is called with its exit code, output and log when it has ended."""

    pid: int
    said: int
    log: int
    done: Callable[[int, str, str], object]

    def finish(self, status: int) -> None:
        code = os.waitstatus_to_exitcode(status)
        said, log = (os.pread(file, MOST_SAID, 0).decode("utf-8", "replace") for file in (self.said, self.log))
        self.close()
        self.done(code, said, log)

    def close(self) -> None:
        os.close(self.said)
        os.close(self.log)


def begin(
    place: Place,
    argv: Sequence[str],
    done: Callable[[int, str, str], object],
    *,
    request: Request | None = None,
    stdio: Sequence[int | None] | None = None,
    passed: Sequence[int] = (),
    joined: Sequence[str] = (),
    network: bool = False,
) -> Command:
    """Starts a runsc command. `stdio` are runsc's own; without them, stdin is empty and the output is kept for `done`. `passed` are open in runsc
    from FIRST_GIVEN on. `request` describes the root and the files to build in addition to the usual ones."""
    said, log = (os.memfd_create(name, os.MFD_CLOEXEC) for name in ("said", "log"))
    pid = os.fork()
    if pid == 0:
        _become(place, argv, request or {}, stdio, (said, log), passed, joined, network=network)
    return Command(pid, said, log, done)


def _become(
    place: Place, argv: Sequence[str], request: Request, stdio: Sequence[int | None] | None,
    own: tuple[int, int], passed: Sequence[int], joined: Sequence[str], *, network: bool,
) -> NoReturn:  # fmt: skip
    said, log = own
    try:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
        os.setsid()
        cgroups.join(joined)
        confine.prefer_for_oom(OOM_SCORE)
        null = os.open("/dev/null", os.O_RDWR)
        given = [null, said, said] if stdio is None else [null if each is None else each for each in stdio]
        arrange([*given, *[null] * (LOG - 3), log, *passed])
        if os.isatty(0):  # Ctrl-C then signals runsc, which passes it on
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)
        who = runsc_root.build({**request, "directory": place.directory, "runsc": place.runsc}, place.ids, place.state)
        _write_log({"who": who})
        runsc_root.enter(place.userns, ranged=place.ranged, network=network)
        line = ["runsc", *place.flags, f"--log=/proc/self/fd/{LOG}", "--log-format=json", *argv]
        os.execve(runsc_root.PROGRAM, line, {"PATH": "/", "HOME": "/"})  # noqa: S606  # a shell is not wanted
    except Refused as refused:
        _write_log({"refused": [refused.reason, refused.message]})
    except OSError as error:
        _write_log({"refused": ["Gvisor", f"cannot start runsc: {error.strerror} ({error.filename})"]})
    except BaseException as error:
        _write_log({"refused": ["Gvisor", f"cannot start runsc: {type(error).__name__}: {error}"]})
    finally:
        os._exit(FAILED)


def arrange(wanted: Sequence[int]) -> None:
    """Makes these the open files of this process, numbered from 0. All others are closed by exec."""
    for number, file in enumerate([out_of_the_way(os.dup(file)) for file in wanted]):
        os.dup2(file, number, inheritable=True)
        os.close(file)


def out_of_the_way(file: int) -> int:
    """The same open file under a number that `arrange` does not use."""
    try:
        return fcntl.fcntl(file, fcntl.F_DUPFD_CLOEXEC, HIGH)
    finally:
        os.close(file)


def _write_log(message: Request) -> None:
    """Writes a message to the log, before runsc writes there."""
    with contextlib.suppress(OSError):
        os.write(LOG, json.dumps(message).encode())


def readable_by_all(file: int) -> None:
    """Lets runsc, which runs as another user, reopen the file through /proc/self/fd."""
    os.fchmod(file, 0o666)


def stdio(given: Sequence[bool], files: Sequence[int]) -> list[int | None]:
    """Assigns the received files to stdin, stdout and stderr."""
    rest = iter(files)
    return [next(rest) if each else None for each in given]
