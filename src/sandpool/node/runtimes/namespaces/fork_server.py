"""The main process's side of the fork-server and of others that fork workers: starts it, and sends requests to its workers."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

import sandpool
from sandpool.base import open_files as descriptors
from sandpool.base.errors import NodeError
from sandpool.node.runtimes.namespaces.channel import Channel, ProcessHandle
from sandpool.node.runtimes.namespaces.forked.frames import Message, Refused, error_text
from sandpool.node.runtimes.namespaces.forked.processes import descendants, listed

PATIENCE = 30.0


def isolated_python(
    program: str = "from sandpool.node.runtimes.namespaces.forked.forkserver import main; main()",
) -> tuple[str, ...]:
    """A command line for Python, isolated from the environment and the user's packages; only our own package and the standard library
    can be imported."""
    directory = str(Path(sandpool.__file__).parents[1])
    return (sys.executable, "-I", "-S", "-c", f"import sys; sys.path.append({directory!r}); {program}")


class Forker:
    """A process that forks workers on request: the fork-server, or the shim of a sandbox. `name` is for messages."""

    name = "fork-server"

    def __init__(self) -> None:
        self._channel: Channel | None = None
        self._handle: ProcessHandle | None = None

    @property
    def alive(self) -> bool:
        return self._channel is not None and not self._channel.ended

    def worker(self, *, tidies: bool = False, kept_as: str = "") -> socket.socket:
        """Forks a worker, which waits for a request, and returns the socket to it. `tidies`: the worker only removes something, so it may use
        the reserved descriptors of this process. `kept_as`: a shim keeps our end of the socket, too, so that the worker outlives us."""
        ours, its = socket_pair(last=tidies)
        with its:
            message: Message = {"fork": True, "as": kept_as} if kept_as else {"fork": True}
            files = [its.fileno(), ours.fileno()] if kept_as else [its.fileno()]
            try:
                self.send(message, files)
            except NodeError:
                ours.close()
                raise
        return ours

    def send(self, message: Message, files: Sequence[int] = ()) -> None:
        try:
            if self._channel is None:
                raise Refused("Gone", "it is not started")
            self._channel.send(message, files)
        except (Refused, OSError) as error:
            raise NodeError("ForkServer", f"the {self.name} does not answer: {error_text(error)}") from error

    async def once(self, request: Message, files: Sequence[int] = (), patience: float | None = PATIENCE) -> list[int]:
        """Has a worker serve one request. Returns the open files it sends."""
        return (await self.ask(request, files, patience))[1]

    async def ask(
        self, request: Message, files: Sequence[int] = (), patience: float | None = PATIENCE
    ) -> tuple[Message, list[int]]:
        """The same as `once`, but also returns the worker's message."""
        answer: asyncio.Future[tuple[Message, list[int]]] = asyncio.get_running_loop().create_future()

        def on_message(message: Message, given: list[int]) -> None:
            if answer.done() or "handle" in message:
                close_files(given)
            elif "done" in message:
                answer.set_result((message, given))
            else:
                close_files(given)
                answer.set_exception(as_error(message))

        def ended() -> None:
            if not answer.done():
                answer.set_exception(NodeError("ForkServer", f"a worker ended before it could {request['do']}"))

        channel = Channel(self.worker(tidies=request["do"] == "remove"), on_message, ended)
        try:
            channel.send(request, files)
            async with asyncio.timeout(patience):
                return await answer
        except TimeoutError:
            raise NodeError("ForkServer", f"a worker took more than {patience} s to {request['do']}") from None
        except (Refused, OSError) as error:
            raise NodeError(
                "ForkServer", f"a worker cannot be asked to {request['do']}: {error_text(error)}"
            ) from error
        finally:
            channel.close()


class ForkServer(Forker):
    """One fork server process, from `start` to `close`. It is never started twice: a dead one is replaced by a new object."""

    def __init__(self, entry: Sequence[str]) -> None:
        super().__init__()
        self._entry = entry
        self._process: subprocess.Popen[bytes] | None = None
        self._ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    async def start(self) -> None:
        ours, its = socket_pair(last=True)
        with its:
            try:
                self._process = subprocess.Popen(  # noqa: ASYNC220, S603  # our own program; a millisecond
                    [*self._entry, str(its.fileno())], env={}, cwd="/", pass_fds=[its.fileno()], start_new_session=True,
                    stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                )  # fmt: skip
            except OSError as error:
                ours.close()
                raise NodeError("ForkServer", f"cannot start {self._entry[0]}: {error.strerror}") from error
        self._handle = ProcessHandle(os.pidfd_open(self._process.pid))
        self._handle.gone.add_done_callback(self._reap)
        self._channel = Channel(ours, self._on_message, self._ended)
        try:
            async with asyncio.timeout(PATIENCE):
                await self._ready
        except TimeoutError:
            await self.close()
            raise NodeError("ForkServer", f"the fork server did not answer for {PATIENCE:.0f} s; try again") from None
        except BaseException:
            await self.close()
            raise

    def _reap(self, gone: asyncio.Future[None]) -> None:
        if self._process is not None:
            self._process.wait()

    def _on_message(self, message: Message, files: list[int]) -> None:
        close_files(files)
        if self._ready.done():
            return
        if "ready" in message:
            self._ready.set_result(None)
        else:
            self._ready.set_exception(as_error(message))

    def _ended(self) -> None:
        if not self._ready.done():
            self._ready.set_exception(NodeError("ForkServer", "the fork-server ended while it started; see the log"))

    async def close(self) -> None:
        """Ends the fork-server and its workers. The shims of sandboxes stay."""
        if self._channel is not None:
            self._channel.close()
        if self._handle is not None and self._process is not None:
            try:
                async with asyncio.timeout(PATIENCE):
                    await self._handle.wait()
            except TimeoutError:
                self._handle.kill()
                await self._handle.wait()
        self._ready.cancel()


def socket_pair(kind: int = socket.SOCK_SEQPACKET, *, last: bool = False) -> tuple[socket.socket, socket.socket]:
    """Two connected sockets. NodeError if they would use reserved descriptors of this process (base/open_files.py), unless `last`."""
    try:
        ours, its = socket.socketpair(socket.AF_UNIX, kind)
    except OSError as error:
        raise NodeError("OutOfDescriptors", descriptors.limit_message()) from error
    if not last and descriptors.scarce(max(ours.fileno(), its.fileno())):
        ours.close()
        its.close()
        raise NodeError("OutOfDescriptors", descriptors.limit_message())
    return ours, its


def as_error(message: Message) -> NodeError:
    """The error that a worker reported."""
    match message.get("refused"):
        case [str(reason), str(text)]:
            return NodeError(reason[:64], text[:4096])
    return NodeError("ForkServer", "a worker sent an invalid response")


def close_files(files: Sequence[int]) -> None:
    for file in files:
        with contextlib.suppress(OSError):
            os.close(file)


MEASURE_TIMEOUT = 600.0  # seconds: there may be very many files


async def measure_directories(server: ForkServer, directories: Sequence[Path]) -> list[tuple[int, int]]:
    message, files = await server.ask(
        {"do": "measure", "directories": [str(path) for path in directories]}, patience=MEASURE_TIMEOUT
    )
    close_files(files)
    match message.get("used"):
        case [*found] if len(found) == len(directories):
            return [_pair(each) for each in found]
    raise NodeError("ForkServer", "a worker sent an invalid response")


def _pair(said: object) -> tuple[int, int]:
    match said:
        case [int(size), int(inodes)]:
            return size, inodes
    raise NodeError("ForkServer", "a worker sent an invalid response")


def with_descendants(leaders: Iterable[int | None]) -> set[int]:
    """These processes and all that descend from them."""
    proc = os.open("/proc", os.O_RDONLY | os.O_DIRECTORY)
    try:
        everybody = listed(proc)
    finally:
        os.close(proc)
    known = [leader for leader in leaders if leader is not None]
    return {pid for leader in known for pid in (leader, *descendants(everybody, leader))}
