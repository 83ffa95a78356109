"""Finds open files in the queues of sockets: sent, not yet received, and so in no process's file table.

The queue of a socket can be read without removing anything, files included. A queue of connections that nobody has accepted cannot be
inspected, nor can a message without bytes that was peeked at before; there the kernel's count of files helps. Everything here blocks.
"""

from __future__ import annotations

import array
import ctypes
import os
import socket
import stat
from collections.abc import Iterator

_PIDFD_GETFD = 438
_PIDFD_THREAD = os.O_EXCL  # since Linux 6.9
_SO_PEEK_OFF = 42
_DEEPEST = 8  # nesting of sockets in queues of sockets
_MOST_MESSAGES = 10_000
_MOST_FILES = 253  # SCM_MAX_FD of the kernel
_MESSAGE = 256 * 1024
_libc = ctypes.CDLL(None, use_errno=True)


def files_in_flight(task: str, name: str) -> int:
    """How many files wait in the queue of a socket, by the kernel's own count. `task` is a directory of /proc."""
    try:
        with open(f"{task}/fdinfo/{name}") as file:
            return next((int(line.split()[1]) for line in file if line.startswith("scm_fds:")), 0)
    except (OSError, ValueError):
        return 0


def queued(tid: int, name: str, *, leader: bool) -> Iterator[int | None]:
    """Copies of the files in the queue of a thread's socket, which are closed when the next is asked for; None for what cannot be
    inspected. `leader`: the thread is the first of its process."""
    sock = _taken(tid, int(name), 0 if leader else _PIDFD_THREAD)
    if sock is None:
        yield None
        return
    with sock:
        yield from _queued(sock, 0)


def _taken(tid: int, number: int, flags: int) -> socket.socket | None:
    try:
        task = os.pidfd_open(tid, flags)
    except OSError:
        return None
    try:
        copy = _libc.syscall(_PIDFD_GETFD, task, number, 0)
    finally:
        os.close(task)
    return socket.socket(fileno=copy) if copy >= 0 else None


def _queued(sock: socket.socket, depth: int) -> Iterator[int | None]:
    there = files_in_flight("/proc/self", str(sock.fileno()))
    if not there:
        return
    if sock.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN) or depth > _DEEPEST:
        yield None
        return
    before = sock.getsockopt(socket.SOL_SOCKET, _SO_PEEK_OFF)
    try:
        sock.setsockopt(socket.SOL_SOCKET, _SO_PEEK_OFF, 0)
        for _ in range(_MOST_MESSAGES):
            files = _peeked(sock)
            if files is None:
                break
            there -= len(files)
            try:
                while files:
                    yield from _looked_at(files.pop(), depth)
            finally:  # also when the caller stops iterating
                for file in files:
                    os.close(file)
            if there <= 0:
                return
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
    """The files of the next message; None if no more can be inspected."""
    flags = socket.MSG_PEEK | socket.MSG_DONTWAIT | socket.MSG_CMSG_CLOEXEC
    space = socket.CMSG_SPACE(_MOST_FILES * array.array("i").itemsize)
    try:
        _, said, cut, _ = sock.recvmsg(_MESSAGE, space, flags)
    except OSError:
        return None
    files: list[int] = []
    for level, kind, body in said:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            numbers = array.array("i")
            numbers.frombytes(body[: len(body) - len(body) % numbers.itemsize])
            files += numbers
    if cut & socket.MSG_CTRUNC:  # out of descriptors in this process
        for file in files:
            os.close(file)
        return None
    return files
