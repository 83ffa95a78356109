"""One run of runsc: a process that builds the root it needs, becomes nobody, and is replaced by runsc.

What it says about itself goes to a file in memory, apart from what the sandboxed program says.
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

from sandpool.node.runtimes.gvisor.forked import world
from sandpool.node.runtimes.namespaces.forked import cgroup_files, confine
from sandpool.node.runtimes.namespaces.forked.frames import Refused
from sandpool.node.runtimes.namespaces.forked.layers import Ids

MOST_SAID = 256 * 1024
LOG, FIRST_GIVEN = 9, 10  # numbers of open files in runsc; from the second on, those that are passed into the sandbox
OOM_SCORE = 500
HIGH = 100
FAILED = 125  # of this process itself, with a refusal in its log

Order = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Place:
    """What all commands of a sandbox have in common."""

    folder: str
    state: str
    runsc: str
    ids: Ids
    userns: int
    ranged: bool
    flags: Sequence[str]


@dataclass(slots=True)
class Command:
    """A process that runs, and what to do when it has ended: `done` is given its exit code and what it said."""

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
    order: Order | None = None,
    stdio: Sequence[int | None] | None = None,
    passed: Sequence[int] = (),
    joined: Sequence[str] = (),
    network: bool = False,
) -> Command:
    """`stdio`: those of runsc itself; without them, nothing is read, and what is said is kept for `done`. `passed` are open
    in runsc from FIRST_GIVEN on. `order`: the root and the files to build beside the usual ones."""
    said, log = (os.memfd_create(name, os.MFD_CLOEXEC) for name in ("said", "log"))
    pid = os.fork()
    if pid == 0:
        _become(place, argv, order or {}, stdio, (said, log), passed, joined, network=network)
    return Command(pid, said, log, done)


def _become(
    place: Place, argv: Sequence[str], order: Order, stdio: Sequence[int | None] | None,
    own: tuple[int, int], passed: Sequence[int], joined: Sequence[str], *, network: bool,
) -> NoReturn:  # fmt: skip
    said, log = own
    try:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
        os.setsid()
        cgroup_files.join(joined)
        confine.prefer_for_oom(OOM_SCORE)
        null = os.open("/dev/null", os.O_RDWR)
        given = [null, said, said] if stdio is None else [null if each is None else each for each in stdio]
        arrange([*given, *[null] * (LOG - 3), log, *passed])
        if os.isatty(0):  # what is typed to interrupt a command interrupts runsc, which passes it on
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)
        who = world.build({**order, "folder": place.folder, "runsc": place.runsc}, place.ids, place.state)
        _tell({"who": who})
        world.enter(place.userns, ranged=place.ranged, network=network)
        line = ["runsc", *place.flags, f"--log=/proc/self/fd/{LOG}", "--log-format=json", *argv]
        os.execve(world.PROGRAM, line, {"PATH": "/", "HOME": "/"})  # noqa: S606  # a shell is not wanted
    except Refused as refused:
        _tell({"refused": [refused.reason, refused.message]})
    except OSError as error:
        _tell({"refused": ["Gvisor", f"cannot start runsc: {error.strerror} ({error.filename})"]})
    except BaseException as error:
        _tell({"refused": ["Gvisor", f"cannot start runsc: {type(error).__name__}: {error}"]})
    finally:
        os._exit(FAILED)


def arrange(wanted: Sequence[int]) -> None:
    """The open files of this process become these, in this order; all others close when runsc begins."""
    for number, file in enumerate([out_of_the_way(os.dup(file)) for file in wanted]):
        os.dup2(file, number, inheritable=True)
        os.close(file)


def out_of_the_way(file: int) -> int:
    """The same open file under a number that `arrange` does not use."""
    try:
        return fcntl.fcntl(file, fcntl.F_DUPFD_CLOEXEC, HIGH)
    finally:
        os.close(file)


def _tell(message: Order) -> None:
    """In the log, before runsc writes there."""
    with contextlib.suppress(OSError):
        os.write(LOG, json.dumps(message).encode())


def readable_by_all(file: int) -> None:
    """So that runsc, who is somebody else, can open it again by its number."""
    os.fchmod(file, 0o666)


def stdio(given: Sequence[bool], files: Sequence[int]) -> list[int | None]:
    """Which of the files that came is which."""
    rest = iter(files)
    return [next(rest) if each else None for each in given]
