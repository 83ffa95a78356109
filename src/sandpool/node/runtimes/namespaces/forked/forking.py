"""Forks workers: processes that are pid 1 of a pid namespace of their own and serve one request. The fork-server and the shims use it."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
from collections.abc import Callable
from typing import NoReturn

from sandpool.node.runtimes.namespaces.forked import frames, kernel

Work = Callable[[socket.socket], object]
"""Serves one request from the socket."""


def own_pid_namespace() -> int | None:
    """The pid namespace of this process, open, if it may enter it again after it has forked into another one. None for an ordinary user in the
    machine's own."""
    own = os.open("/proc/self/ns/pid", os.O_RDONLY)
    try:
        kernel.setns(own, kernel.CLONE_NEWPID)
        return own
    except OSError:
        os.close(own)
        kernel.prctl(kernel.PR_SET_CHILD_SUBREAPER, 1)  # workers are then forked by a child that exits
        return None


def fork_worker(its: socket.socket, own: int | None, ours: socket.socket | None, work: Work) -> int | None:
    """Forks a worker and sends its pidfd to whoever has the other end of `its`. Returns its pid, if it is a child; the other end is told
    if it could not be forked. `own` is `own_pid_namespace`; `ours` is a socket that the worker must not have."""
    child = None
    try:
        if own is None:
            if kernel.fork() == 0:
                _fork_in_child(its, ours, work)
        else:
            child = _fork(its, own, ours, work)
    except OSError as error:
        _refuse(its, error)
    finally:
        its.close()
    return child


def _fork(its: socket.socket, own: int | None, ours: socket.socket | None, work: Work) -> int:
    kernel.unshare(kernel.CLONE_NEWPID)
    try:
        child = kernel.fork()
        if child == 0:
            _become(its, ours, work)
    finally:
        if own is not None:
            kernel.setns(own, kernel.CLONE_NEWPID)  # otherwise the next child would start in the same pid namespace
    handle = os.pidfd_open(child)
    try:
        frames.send(its, {"handle": True}, [handle])
    finally:
        os.close(handle)
    return child


def _fork_in_child(its: socket.socket, ours: socket.socket | None, work: Work) -> NoReturn:
    try:
        _fork(its, None, ours, work)
    except OSError as error:
        _refuse(its, error)
    finally:
        os._exit(0)


def _refuse(its: socket.socket, error: OSError) -> None:
    with contextlib.suppress(OSError):
        frames.send(its, {"refused": ["ResourceExhausted", f"cannot start a process: {error.strerror}"]})


def _become(its: socket.socket, ours: socket.socket | None, work: Work) -> NoReturn:
    """The worker ends by itself when nobody has the other end of its socket any more."""
    try:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        if ours is not None:
            ours.close()
        work(its)
    finally:
        os._exit(0)
