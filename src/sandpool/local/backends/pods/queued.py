"""Open files that are on their way through a socket: sent, not yet received, and so in no process's table of files.

A socket's queue can be read without taking anything from it, files included. Only a queue of connections that nobody has accepted yet
cannot be looked into; it is counted by what the pod has ever written. All of it blocks.
"""

from __future__ import annotations

import array
import contextlib
import ctypes
import os
import socket
import stat
from collections.abc import Iterable, Iterator

_PIDFD_GETFD = 438
_SO_PEEK_OFF = 42
_DEEPEST = 8  # sockets in the queue of a socket in the queue ...
_MOST_MESSAGES = 10_000
_MOST_FILES = 253  # of one message, by the kernel
_MESSAGE = 256 * 1024
_CUT: list[int] = [-1]
_libc = ctypes.CDLL(None, use_errno=True)


def files_on_the_way(pid: int, name: str) -> int:
    """How many files wait in the queue of a process's socket, by the kernel's own count."""
    try:
        with open(f"/proc/{pid}/fdinfo/{name}") as file:
            return next((int(line.split()[1]) for line in file if line.startswith("scm_fds:")), 0)
    except (OSError, ValueError):
        return 0


def queued(pid: int, name: str) -> Iterator[int | None]:
    """Copies of these files, which are closed when the next is asked for; None for a queue that cannot be looked into."""
    sock = _taken(pid, int(name))
    if sock is None:
        yield None
        return
    with sock:
        yield from _queued(sock, 0)


def written(pids: Iterable[int]) -> int:
    """Bytes that these processes, and those that they have outlived, have ever written to disks."""
    total = 0
    for pid in pids:
        with contextlib.suppress(OSError, ValueError, KeyError):
            with open(f"/proc/{pid}/io") as file:
                said = {key: int(value) for key, _, value in (line.partition(":") for line in file)}
            total += max(0, said["write_bytes"] - said["cancelled_write_bytes"])
    return total


def _taken(pid: int, number: int) -> socket.socket | None:
    try:
        process = os.pidfd_open(pid)
    except OSError:
        return None
    try:
        copy = _libc.syscall(_PIDFD_GETFD, process, number, 0)
    finally:
        os.close(process)
    return socket.socket(fileno=copy) if copy >= 0 else None


def _queued(sock: socket.socket, depth: int) -> Iterator[int | None]:
    if sock.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN) or depth > _DEEPEST:
        yield None
        return
    before = sock.getsockopt(socket.SOL_SOCKET, _SO_PEEK_OFF)
    try:
        sock.setsockopt(socket.SOL_SOCKET, _SO_PEEK_OFF, 0)
        for _ in range(_MOST_MESSAGES):
            files = _peeked(sock)
            if files is _CUT:
                yield None
                return
            if files is None:
                return
            try:
                while files:
                    yield from _looked_at(files.pop(), depth)
            finally:  # also when nobody asks for more
                for file in files:
                    os.close(file)
        yield None
    finally:
        sock.setsockopt(socket.SOL_SOCKET, _SO_PEEK_OFF, before)


def _looked_at(file: int, depth: int) -> Iterator[int | None]:
    if stat.S_ISSOCK(os.fstat(file).st_mode):
        with socket.socket(fileno=file) as inner:
            if inner.family == socket.AF_UNIX:
                yield from _queued(inner, depth + 1)
        return
    try:
        yield file
    finally:
        os.close(file)


def _peeked(sock: socket.socket) -> list[int] | None:
    """The files of the next message; None at the end of the queue."""
    flags = socket.MSG_PEEK | socket.MSG_DONTWAIT | socket.MSG_CMSG_CLOEXEC
    space = socket.CMSG_SPACE(_MOST_FILES * array.array("i").itemsize)
    try:
        data, said, cut, _ = sock.recvmsg(_MESSAGE, space, flags)
    except OSError:
        return None
    files: list[int] = []
    for level, kind, body in said:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            numbers = array.array("i")
            numbers.frombytes(body[: len(body) - len(body) % numbers.itemsize])
            files += numbers
    if cut & socket.MSG_CTRUNC:  # this process may not open so many
        for file in files:
            os.close(file)
        return _CUT
    return files if data or files else None
