"""The process that every sandbox is forked from: one thread, no secrets, nothing but the standard library.

It is pid 1 of a pid namespace of its own, so that when it ends, however that comes, the kernel ends everything that was
ever forked from it. It ends when the main process closes its socket or dies. As an ordinary user it lives in a user namespace
in which it may do what root may do on the machine.
"""

from __future__ import annotations

import contextlib
import gc
import os
import select
import signal
import socket
import sys
from collections.abc import Callable
from typing import NoReturn

from sandpool.node.runtimes.namespaces.forked import confine, frames, kernel, shares
from sandpool.node.runtimes.namespaces.forked.frames import Refused
from sandpool.node.runtimes.namespaces.forked.init import Boxd
from sandpool.node.runtimes.namespaces.forked.sources import remember_machine
from sandpool.node.runtimes.namespaces.forked.worker import Also, silence, work

SEPARATE = kernel.CLONE_NEWNS | kernel.CLONE_NEWPID | kernel.CLONE_NEWNET | kernel.CLONE_NEWIPC | kernel.CLONE_NEWUTS


def main(boxd: Boxd | None = None, also: Also | None = None) -> None:
    """The last argument is the number of the open socket to the main process. `also`: orders that workers carry out besides."""
    sock = socket.socket(fileno=int(sys.argv[-1]))
    os.environ.clear()
    kernel.show_as(b"sandpool fork-server")
    os.chdir("/")
    try:
        program = confine.seccomp_program()
        separate()
        child = os.fork()
    except Refused as refused:
        frames.send(sock, {"refused": [refused.reason, refused.message]})
        return
    if child:
        sock.close()
        silence()
        os.waitpid(child, 0)
        return
    serve(sock, boxd, program, also)


def separate() -> None:
    """Leaves the machine's namespaces. The mounts of the machine still arrive here, but nothing goes back."""
    root = os.geteuid() == 0
    uid, gid = os.geteuid(), os.getegid()
    together = {} if root else shares.together(shares.of_this_user())
    with frames.doing("make a user namespace" if not root else "make namespaces", "Namespaces"):
        if not root:
            kernel.unshare(kernel.CLONE_NEWUSER)
            for name, text in (("setgroups", "deny"), ("uid_map", f"0 {uid} 1"), ("gid_map", f"0 {gid} 1")):
                with open(f"/proc/self/{name}", "w") as file:
                    file.write(text)
            shares.hold(together)
        else:
            remember_machine()
        kernel.unshare(SEPARATE)
        kernel.mount("none", "/", "", kernel.MS_REC | kernel.MS_SLAVE)


def serve(sock: socket.socket, boxd: Boxd | None, program: bytes, also: Also | None = None) -> None:
    """Forks a worker for each socket that comes, until none can come any more."""
    kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL)
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # of which pid 1 hears nothing; a handler would be heard
    silence()
    own = os.open("/proc/self/ns/pid", os.O_RDONLY)
    woken, wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    poll = select.poll()
    poll.register(sock, select.POLLIN)
    poll.register(woken, select.POLLIN)
    gc.collect()
    gc.disable()
    gc.freeze()  # what is never looked at by the collector is never copied by it
    frames.send(sock, {"ready": True})
    while True:
        ready = {file for file, _ in poll.poll()}
        if woken in ready:
            reap(woken)
        if sock.fileno() in ready:
            received = frames.receive(sock)
            if received is None:
                os._exit(0)
            for file in received[1]:
                fork(socket.socket(fileno=file), own, sock, lambda each: work(each, boxd, program, also))


def reap(woken: int) -> None:
    with contextlib.suppress(BlockingIOError):
        os.read(woken, 4096)
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def fork(its: socket.socket, own: int, ours: socket.socket, body: Callable[[socket.socket], object]) -> None:
    """A child that is pid 1 of a pid namespace of its own; the main process is given a handle to it."""
    try:
        kernel.unshare(kernel.CLONE_NEWPID)
        try:
            child = kernel.fork()
        except OSError:
            kernel.setns(own, kernel.CLONE_NEWPID)
            raise
        if child == 0:
            _become(its, ours, body)
        kernel.setns(own, kernel.CLONE_NEWPID)  # else the next child would be born into the same one
        handle = os.pidfd_open(child)
        frames.send(its, {"handle": True}, [handle])
        os.close(handle)
    except OSError as error:
        with contextlib.suppress(OSError):
            frames.send(its, {"refused": ["ResourceExhausted", f"cannot start a process: {error.strerror}"]})
    finally:
        its.close()


def _become(its: socket.socket, ours: socket.socket, body: Callable[[socket.socket], object]) -> NoReturn:
    try:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL)
        ours.close()
        body(its)
    finally:
        os._exit(0)
