"""The user namespace of a sandbox, kept by an open file and no process."""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence

from sandpool.node.runtimes.namespaces.forked import kernel
from sandpool.node.runtimes.namespaces.forked.frames import doing
from sandpool.node.runtimes.namespaces.forked.namespaces import write_maps


def user_namespace(ids: Sequence[int]) -> int:
    """`ids`: first inside, first outside, how many. A process enters a new one and waits there until this one, which may, has
    written its maps."""
    with doing("make a user namespace", "Namespaces"):
        ready, entered = os.pipe()
        done, leave = os.pipe()
        child = os.fork()
        if child == 0:
            _enter(entered, done, leave)
        os.close(entered)
        os.close(done)
        try:
            pid = os.read(ready, 64).decode()
            if not pid.isdigit():
                number = int(pid[1:] or errno.EAGAIN)
                raise OSError(number, os.strerror(number), "unshare")
            write_maps(f"/proc/{pid}", " ".join(str(number) for number in ids).encode(), groups=ids[2] > 1)
            return os.open(f"/proc/{pid}/ns/user", os.O_RDONLY)
        finally:
            os.close(ready)
            os.close(leave)
            os.waitpid(child, 0)


def _enter(entered: int, done: int, leave: int) -> None:
    try:
        os.close(leave)
        try:
            kernel.unshare(kernel.CLONE_NEWUSER)
            os.write(entered, os.readlink("/proc/self").encode())  # its number where /proc was mounted, not here
        except OSError as error:
            os.write(entered, f"-{error.errno}".encode())
        os.read(done, 1)
    finally:
        os._exit(0)
