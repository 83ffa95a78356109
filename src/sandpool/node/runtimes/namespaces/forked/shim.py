"""The shim of one sandbox: the process that its containers are forked from.

It is pid 1 of a pid namespace around those of the containers, so when it ends, for whatever reason, the kernel kills everything in the
sandbox. It needs neither the fork-server, which it was forked from, nor the node: it keeps what a later node process needs to take
the sandbox over (a JSON value and open files, by name) and listens for that process on a socket in a directory that only our user can enter.
What ends the sandbox is the end of the shim. One thread, only the standard library.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import struct
from dataclasses import dataclass, field

from sandpool.node.runtimes.namespaces.forked import frames, kernel
from sandpool.node.runtimes.namespaces.forked.forking import Work, fork_worker, own_pid_namespace
from sandpool.node.runtimes.namespaces.forked.frames import Malformed, Message

TITLE = b"sandpool shim"
PROTOCOL = 1
"""Of the messages below. A node that does not know it ends the sandbox, and says so."""


@dataclass(slots=True)
class Kept:
    """What is kept by one name. `channel` and `pid` belong to a worker that was forked by that name; `status` is its wait status once it has
    exited."""

    value: Message = field(default_factory=dict)
    files: list[int] = field(default_factory=list)
    channel: int | None = None
    pid: int | None = None
    status: int | None = None

    def close(self) -> None:
        for file in (*self.files, *([] if self.channel is None else [self.channel])):
            os.close(file)
        self.files, self.channel = [], None


class Shim:
    """`node` is the connection to the node process; `listener` is where a later one connects, or None: then the sandbox ends with the node.
    `work` serves one request in a forked worker."""

    def __init__(self, node: socket.socket, listener: socket.socket | None, work: Work) -> None:
        self._node: socket.socket | None = node
        self._listener = listener
        self._work = work
        self._kept: dict[str, Kept] = {}
        self._own = own_pid_namespace()

    def run(self) -> None:
        """Serves until the sandbox is ended: by a signal or, without a listener, by the end of the node."""
        kernel.show_as(TITLE)
        if self._listener is not None:
            self._listener.listen(1)  # not the node: the kernel says to those who connect which process has called this
        woken, wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.signal(signal.SIGCHLD, lambda number, frame: None)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        while self._node is not None or self._listener is not None:
            asked = [sock for sock in (self._node, self._listener) if sock is not None]
            poll = select.poll()
            for file in (woken, *(sock.fileno() for sock in asked)):
                poll.register(file, select.POLLIN)
            ready = {file for file, _ in poll.poll()}
            if woken in ready:
                self._reap(woken)
            if self._node is not None and self._node.fileno() in ready:
                self._serve(self._node)
            elif self._listener is not None and self._listener.fileno() in ready:
                self._accept(self._listener)

    def _reap(self, woken: int) -> None:
        with contextlib.suppress(BlockingIOError):
            os.read(woken, 4096)
        by_pid = {kept.pid: kept for kept in self._kept.values() if kept.pid is not None}
        with contextlib.suppress(ChildProcessError):
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if not pid:
                    return
                if (kept := by_pid.get(pid)) is not None:
                    kept.pid, kept.status = None, status

    def _accept(self, listener: socket.socket) -> None:
        """Only one node process exists at a time, which holds the lock of the data directory: any other is turned away while it is connected."""
        with contextlib.suppress(OSError):
            node, _ = listener.accept()
            _, uid, _ = struct.unpack("iII", node.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
            if uid == os.geteuid() and self._node is None:
                node.setblocking(True)
                self._node = node
            else:
                node.close()

    def _serve(self, node: socket.socket) -> None:
        try:
            received = frames.receive(node)
        except (Malformed, OSError):
            received = None
        try:
            if received is None:
                raise BrokenPipeError
            self._answer(node, *received)
        except OSError:  # the node is gone
            node.close()
            self._node = None

    def _answer(self, node: socket.socket, message: Message, files: list[int]) -> None:
        match message:
            case {"fork": _} if files:
                self._fork(socket.socket(fileno=files[0]), message.get("as"), files[1:])
                return
            case {"keep": str(name), "value": dict(value)}:
                kept = self._kept.setdefault(name, Kept())
                before, kept.value, kept.files = kept.files, value, files
                files = before
            case {"drop": str(name)}:
                if (dropped := self._kept.pop(name, None)) is not None:
                    dropped.close()
            case {"who": _}:
                self._introduce(node)
            case {"recall": _}:
                self._recall(node)
        for file in files:
            os.close(file)

    def _fork(self, its: socket.socket, name: str | None, files: list[int]) -> None:
        """With a name, the second file is the node's end of the worker's socket. It is kept, so that the worker stays when the node ends."""
        pid = fork_worker(its, self._own, self._node, self._work)
        if name is not None and files:
            self._kept[name] = Kept(channel=files.pop(0), pid=pid)
        for file in files:
            os.close(file)

    def _introduce(self, node: socket.socket) -> None:
        handle = os.pidfd_open(os.getpid())
        try:
            frames.send(node, {"handle": True, "protocol": PROTOCOL}, [handle])
        finally:
            os.close(handle)

    def _recall(self, node: socket.socket) -> None:
        for name, kept in list(self._kept.items()):
            running = None if kept.pid is None else os.pidfd_open(kept.pid)
            own = [file for file in (kept.channel, running) if file is not None]
            said: Message = {
                "kept": name, "value": kept.value, "channel": kept.channel is not None, "running": running is not None,
                "status": kept.status,
            }  # fmt: skip
            try:
                frames.send(node, said, [*own, *kept.files])
            finally:
                if running is not None:
                    os.close(running)
        frames.send(node, {"recalled": True})
