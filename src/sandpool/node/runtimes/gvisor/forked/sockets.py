"""Unix sockets through which runsc hands the shim a terminal's master or a connection."""

from __future__ import annotations

import contextlib
import os
import pty
import socket

from sandpool.node.runtimes.gvisor.forked.runsc_root import MEET
from sandpool.node.runtimes.namespaces.forked.frames import Refused

PATIENCE = 10.0


def listen(path: str, backlog: int = 1) -> socket.socket:
    """Listens on a unix socket. Every process that sees the directory may connect. Only we can write to the directory, and no mode is changed by
    name, because a directory that runsc can write to may contain links to anything."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    mask = os.umask(0)
    try:
        listener.bind(path)
    finally:
        os.umask(mask)
    listener.listen(backlog)
    return listener


class HandoverSocket:
    """A listening socket for one use, in a directory that runsc sees but cannot write to."""

    def __init__(self, directory: str, name: str) -> None:
        self._directory, self._name = directory, name
        os.chdir(directory)  # the path of a unix socket must be short
        self._listener = listen(name)
        os.chdir("/")
        self._listener.settimeout(PATIENCE)

    @property
    def path(self) -> str:
        return f"{MEET}/{self._name}"

    def accept(self) -> socket.socket:
        self._accepted, _ = self._listener.accept()
        return self._accepted

    def __enter__(self) -> HandoverSocket:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._listener.close()
        with contextlib.suppress(AttributeError):
            self._accepted.close()
        with contextlib.suppress(OSError):
            os.unlink(f"{self._directory}/{self._name}")


class ConsoleSocket(HandoverSocket):
    """Where runsc sends the master of a container's terminal."""

    def __init__(self, directory: str, name: str) -> None:
        super().__init__(directory, f"{name}.tty")

    @property
    def flags(self) -> list[str]:
        return [f"--console-socket={self.path}"]

    def take(self) -> int:
        try:
            _, files, _, _ = socket.recv_fds(self.accept(), 4096, 1, socket.MSG_CMSG_CLOEXEC)
        except OSError as error:
            raise Refused("StartError", f"runsc gave no terminal: {error}") from error
        if not files:
            raise Refused("StartError", "runsc gave no terminal")
        return files[0]


def terminal_pair() -> tuple[int, int]:
    try:
        master, slave = pty.openpty()
    except OSError as error:
        raise Refused("StartError", f"cannot make a terminal: {(error.strerror or '').lower()}") from error
    os.set_inheritable(slave, False)
    return master, slave
