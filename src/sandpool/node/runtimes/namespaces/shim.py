"""The main process's side of a sandbox's shim (forked/shim.py): starts it or connects to one that is there, and has it keep and return things.

The run directory has one socket for each shim, named after the sandbox, and nothing else is needed to find a sandbox again: who answers
there is its living shim. After a reboot, or after the end of the shim, nobody answers, and the socket is removed.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import signal
import socket
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sandpool.base.errors import NodeError
from sandpool.node.runtimes.namespaces.channel import Channel, ProcessHandle, pid_of
from sandpool.node.runtimes.namespaces.fork_server import Forker, ForkServer, as_error, close_files
from sandpool.node.runtimes.namespaces.forked.cgroups import read
from sandpool.node.runtimes.namespaces.forked.frames import Message
from sandpool.node.runtimes.namespaces.forked.shim import PROTOCOL, TITLE

PATIENCE = 30.0
SHIM_GONE = "the sandbox was ended from outside"


@dataclass(slots=True)
class Recalled:
    """What a shim kept by one name. The owner closes the files. `channel` and `process` are those of a worker; `status` is its wait status if it has
    exited."""

    value: Mapping[str, Any]
    files: list[int]
    channel: socket.socket | None = None
    process: int | None = None
    status: int | None = None

    def kill(self) -> None:
        if self.process is not None:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self.process, signal.SIGKILL)

    def close(self) -> None:
        close_files([*self.files, *([] if self.process is None else [self.process])])
        if self.channel is not None:
            self.channel.close()
        self.files, self.channel, self.process = [], None, None


class RunDirectory:
    """The sockets of shims. Only our user can enter it. Sockets are named by descriptor, because their whole path may be too long for one."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def bind(self, sandbox: str) -> socket.socket:
        self.path.mkdir(parents=True, exist_ok=True, mode=0o700)
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            self.forget(sandbox)
            with _opened(self.path) as directory:
                listener.bind(f"{directory}/{sandbox}")
        except OSError as error:
            listener.close()
            raise NodeError(
                "CreatePodSandboxError", f"cannot make a socket in {self.path}: {error.strerror}"
            ) from error
        return listener

    def connect(self, sandbox: str) -> socket.socket | None:
        """A connection to the living shim of a sandbox; None if there is none."""
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            with _opened(self.path) as directory:
                connection.connect(f"{directory}/{sandbox}")
        except OSError:
            connection.close()
            return None
        return connection

    def sandboxes(self) -> list[str]:
        with contextlib.suppress(OSError):
            return sorted(os.listdir(self.path))
        return []

    def forget(self, sandbox: str) -> None:
        with contextlib.suppress(OSError):
            (self.path / sandbox).unlink()

    def living(self) -> dict[str, int]:
        """The living shims, as pidfds, which the caller closes. Blocks for a moment."""
        found = {}
        for sandbox in self.sandboxes():
            if (connection := self.connect(sandbox)) is None:
                continue
            with connection:
                if (handle := handle_of(connection)) is not None:
                    found[sandbox] = handle
        return found

    def pids(self) -> dict[str, int]:
        """The pids of the same."""
        living = self.living()
        found = {sandbox: pid for sandbox, handle in living.items() if (pid := pid_of(handle)) is not None}
        close_files(list(living.values()))
        return found

    def end_all(self) -> None:
        """Ends all sandboxes. Only while no node process has them; blocks until they have ended."""
        for sandbox, handle in self.living().items():
            kill_and_wait(handle)
            os.close(handle)
            self.forget(sandbox)


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[str]:
    directory = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{directory}"
    finally:
        os.close(directory)


def kill_and_wait(handle: int) -> None:
    """Kills the process of a pidfd and waits until it and, if it is a shim, its sandbox have ended. Blocks."""
    with contextlib.suppress(ProcessLookupError):
        signal.pidfd_send_signal(handle, signal.SIGKILL)
    select.select([handle], [], [], PATIENCE)


def handle_of(connection: socket.socket) -> int | None:
    """The pidfd of the shim that listens, whether it answers or not: the kernel knows who has called `listen`. None if it has just ended."""
    pid, _, _ = struct.unpack("iII", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    try:
        handle = os.pidfd_open(pid)
    except OSError:
        return None
    if read(f"/proc/{pid}/cmdline").startswith(TITLE.decode()):
        return handle
    os.close(handle)  # the pid belongs to another process now
    return None


class Shim(Forker):
    """The shim of one sandbox. `start` forks one, `attach` takes over a connection to one that is there; `end` ends it with everything in
    the sandbox."""

    name = "shim of the sandbox"

    def __init__(self, sock: socket.socket) -> None:
        super().__init__()
        loop = asyncio.get_running_loop()
        self._known: asyncio.Future[None] = loop.create_future()
        self._recalled: asyncio.Future[None] = loop.create_future()
        self._found: dict[str, Recalled] = {}
        self._protocol = PROTOCOL
        self._channel = Channel(sock, self._on_message, self._ended)

    @classmethod
    async def start(cls, server: ForkServer, listener: socket.socket | None) -> Shim:
        """Returns when it is forked. Without a listener, it ends with this process."""
        shim = cls(server.worker())
        shim.send({"do": "shim"}, [] if listener is None else [listener.fileno()])
        await shim._introduced()
        return shim

    @classmethod
    async def attach(cls, sock: socket.socket) -> Shim:
        """NodeError if it is of a version that this one does not understand."""
        shim = cls(sock)
        shim.send({"who": True})
        await shim._introduced()
        if shim._protocol != PROTOCOL:
            await shim.end()
            raise NodeError(
                "SandboxGone",
                f"its shim speaks version {shim._protocol} of the protocol, and this node version {PROTOCOL}",
            )
        return shim

    @property
    def pid(self) -> int | None:
        """Its pid while it lives, as the machine sees it."""
        return None if self._handle is None else self._handle.pid

    async def _introduced(self) -> None:
        try:
            async with asyncio.timeout(PATIENCE):
                await asyncio.shield(self._known)
        except TimeoutError:
            assert self._channel is not None
            self._channel.close()
            raise NodeError("ForkServer", f"a shim did not start in {PATIENCE:.0f} s; try again") from None

    def keep(self, name: str, value: Mapping[str, Any], files: Sequence[int] = ()) -> None:
        """Has it keep a JSON value and open files. The caller still owns its own."""
        self.send({"keep": name, "value": dict(value)}, files)

    def drop(self, name: str) -> None:
        with contextlib.suppress(NodeError):  # nothing is kept any more
            self.send({"drop": name})

    async def recall(self) -> dict[str, Recalled]:
        """Everything that it keeps, by name. It still keeps it. NodeError if it ends meanwhile."""
        self.send({"recall": True})
        try:
            async with asyncio.timeout(PATIENCE):
                await asyncio.shield(self._recalled)
        except BaseException as error:
            for each in self._found.values():
                each.close()
            if isinstance(error, TimeoutError):
                raise NodeError("SandboxGone", f"its shim gave no answer for {PATIENCE:.0f} s") from None
            raise
        found, self._found = self._found, {}
        return found

    async def end(self) -> None:
        """Kills it and everything in the sandbox, and waits for the end."""
        with contextlib.suppress(NodeError):
            await asyncio.shield(self._known)
        if self._handle is not None:
            self._handle.kill()
            await self._handle.wait()
        if self._channel is not None:
            self._channel.close()

    def leave(self) -> None:
        """Disconnects. A shim that listens stays."""
        assert self._channel is not None
        self._channel.close()
        if self._handle is not None:
            self._handle.close()

    def _on_message(self, message: Message, files: list[int]) -> None:
        match message:
            case {"handle": _} if self._handle is None and files:
                self._handle = ProcessHandle(files.pop(0))
                self._protocol = message.get("protocol", PROTOCOL)
                self._known.set_result(None)
            case {"refused": _} if not self._known.done():
                self._known.set_exception(as_error(message))
            case {"kept": str(name), "value": dict(value)}:
                self._found[name] = _recalled(message, value, files)
                return
            case {"recalled": _} if not self._recalled.done():
                self._recalled.set_result(None)
        close_files(files)

    def _ended(self) -> None:
        gone = NodeError("SandboxGone", SHIM_GONE)
        for future in (self._known, self._recalled):
            if not future.done():
                future.set_exception(gone)
                future.exception()


def _recalled(message: Message, value: Mapping[str, Any], files: list[int]) -> Recalled:
    channel = socket.socket(fileno=files.pop(0)) if message.get("channel") and files else None
    process = files.pop(0) if message.get("running") and files else None
    status = message.get("status")
    return Recalled(value, files, channel, process, status if isinstance(status, int) else None)
