"""Sockets at which runsc meets the keeper: to hand over a terminal's master, or to be given a connection."""

from __future__ import annotations

import contextlib
import os
import pty
import socket

from sandpool.node.runtimes.gvisor.forked.world import MEET
from sandpool.node.runtimes.namespaces.forked.frames import Refused

PATIENCE = 10.0


def listen(path: str, backlog: int = 1) -> socket.socket:
    """Whoever sees the folder may connect. It is ours alone to write to, and no mode is changed by name: what runsc can
    write to may hold links to anything."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    mask = os.umask(0)
    try:
        listener.bind(path)
    finally:
        os.umask(mask)
    listener.listen(backlog)
    return listener


class Meeting:
    """A socket in a folder that runsc sees but cannot write to, used once."""

    def __init__(self, folder: str, name: str) -> None:
        self._folder, self._name = folder, name
        os.chdir(folder)  # a socket's path must be short
        self._listener = listen(name)
        os.chdir("/")
        self._listener.settimeout(PATIENCE)

    @property
    def path(self) -> str:
        return f"{MEET}/{self._name}"

    def accept(self) -> socket.socket:
        self._accepted, _ = self._listener.accept()
        return self._accepted

    def __enter__(self) -> Meeting:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._listener.close()
        with contextlib.suppress(AttributeError):
            self._accepted.close()
        with contextlib.suppress(OSError):
            os.unlink(f"{self._folder}/{self._name}")


class Console(Meeting):
    """Where runsc sends the master of a container's terminal."""

    def __init__(self, folder: str, name: str) -> None:
        super().__init__(folder, f"{name}.tty")

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


def pair() -> tuple[int, int]:
    try:
        master, slave = pty.openpty()
    except OSError as error:
        raise Refused("StartError", f"cannot make a terminal: {(error.strerror or '').lower()}") from error
    os.set_inheritable(slave, False)
    return master, slave
