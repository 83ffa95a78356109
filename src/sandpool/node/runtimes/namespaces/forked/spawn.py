"""Starting a command inside: where it is, in which folder, with which files; and in which words it fails.

Runs in pid 1 of a container, which has one thread and gives nothing away: every file of it closes when the command starts.
"""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import stat
import struct
from collections.abc import Mapping, Sequence

from sandpool.node.runtimes.namespaces.forked.frames import Refused

DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
TIOCSPTLCK, TIOCGPTPEER = 0x40045431, 0x5441
IGNORED_BY_US = (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT, signal.SIGCHLD)


def resolve(name: str, search: str) -> str:
    """The program that a shell would take. Looked for before anything is forked: a try would cost a process each."""
    if "/" in name:
        return name
    failure = errno.ENOENT
    for folder in search.split(":"):
        path = os.path.join(folder or ".", name)
        try:
            if not stat.S_ISREG(os.stat(path).st_mode):
                continue
        except (OSError, ValueError):
            continue
        if os.access(path, os.X_OK):
            return path
        failure = errno.EACCES
    raise OSError(failure, os.strerror(failure))


def words(error: OSError, argv: Sequence[str]) -> Refused:
    """As a shell would say it."""
    name = argv[0]
    known = {
        errno.ENOENT: f"no such file or directory: {name!r}",
        errno.EACCES: f"permission denied: {name!r} is not executable",
        errno.ENOEXEC: f"exec format error: {name!r} is no program for this machine",
        errno.ENOTDIR: f"not a directory: {name!r}",
        errno.E2BIG: "argument list too long",
    }
    if error.errno in (errno.EAGAIN, errno.ENOMEM):
        return Refused(
            "ResourceExhausted", f"cannot start {name!r}: the sandbox's limit of processes or memory is reached"
        )
    return Refused("StartError", known.get(error.errno or 0, f"cannot start {name!r}: {error.strerror}"))


def start(
    argv: Sequence[str], env: Mapping[str, str], cwd: str, stdio: Sequence[int | None], terminal: int | None
) -> int:
    """The pid of a new session that runs the command; with a terminal, it is the session's own. Returns once it runs."""
    if not argv:
        raise Refused("StartError", "there is no command; set the container's command or use an image that has one")
    enter(cwd)
    try:
        return os.posix_spawn(
            resolve(argv[0], env.get("PATH", DEFAULT_PATH)), list(argv), dict(env),
            file_actions=actions(stdio, terminal), setsid=True, setsigmask=(), setsigdef=IGNORED_BY_US,
        )  # fmt: skip
    except (ValueError, UnicodeError) as error:
        raise Refused("StartError", f"the command or its environment cannot be passed on: {error}") from error
    except OSError as error:
        raise words(error, argv) from error
    finally:
        os.chdir("/")


def enter(cwd: str) -> None:
    try:
        os.chdir(cwd or "/")
    except (OSError, ValueError) as error:
        what = error.strerror if isinstance(error, OSError) else str(error)
        raise Refused("StartError", f"cannot use the working directory {cwd!r}: {(what or '').lower()}") from error


def actions(stdio: Sequence[int | None], terminal: int | None) -> list[tuple[object, ...]]:
    if terminal is not None:  # opened after the session began, it becomes the session's terminal
        opened = (os.POSIX_SPAWN_OPEN, 0, f"/proc/self/fd/{terminal}", os.O_RDWR, 0)
        return [opened, (os.POSIX_SPAWN_DUP2, 0, 1), (os.POSIX_SPAWN_DUP2, 0, 2)]
    found: list[tuple[object, ...]] = []
    for number, file in enumerate(stdio):
        if file is None:
            found.append((os.POSIX_SPAWN_OPEN, number, "/dev/null", os.O_RDWR, 0))
        else:
            found.append((os.POSIX_SPAWN_DUP2, file, number))
    return found


def open_terminal(terminals: int) -> tuple[int, int]:
    """The two ends of a new terminal of this container's own. No path is walked that somebody inside could have changed."""
    try:
        master = os.open("ptmx", os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC, dir_fd=terminals)
        fcntl.ioctl(master, TIOCSPTLCK, struct.pack("i", 0))
        return master, fcntl.ioctl(master, TIOCGPTPEER, os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError as error:
        raise Refused("StartError", f"cannot make a terminal: {(error.strerror or '').lower()}") from error
