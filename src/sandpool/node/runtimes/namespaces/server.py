"""The fork-server as the main process sees it: started when it is first needed, and again when it died."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import sandpool
from sandpool.base import open_files as descriptors
from sandpool.base.errors import NodeError
from sandpool.node.runtimes.namespaces.channel import Channel
from sandpool.node.runtimes.namespaces.forked.frames import Message, Refused, words
from sandpool.node.runtimes.namespaces.handle import Handle

PATIENCE = 30.0
ALL_LOST = "the fork-server, which all sandboxes come from, has ended, and all sandboxes with it; they are started anew"


def isolated(
    program: str = "from sandpool.node.runtimes.namespaces.forked.forkserver import main; main()",
) -> tuple[str, ...]:
    """Isolated from the environment and the user's packages; only our own package can be imported besides the library."""
    folder = str(Path(sandpool.__file__).parents[1])
    return (sys.executable, "-I", "-S", "-c", f"import sys; sys.path.append({folder!r}); {program}")


class ForkServer:
    """One process, from `start` to `close`. It is never started twice: a dead one is replaced by another object."""

    def __init__(self, entry: Sequence[str]) -> None:
        self._entry = entry
        self._process: subprocess.Popen[bytes] | None = None
        self._channel: Channel | None = None
        self._handle: Handle | None = None
        self._ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    @property
    def alive(self) -> bool:
        return self._channel is not None and not self._channel.ended

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    async def start(self) -> None:
        ours, its = pair(last=True)
        with its:
            try:
                self._process = subprocess.Popen(  # noqa: ASYNC220, S603  # our own program; a millisecond
                    [*self._entry, str(its.fileno())], env={}, cwd="/", pass_fds=[its.fileno()], start_new_session=True,
                    stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                )  # fmt: skip
            except OSError as error:
                ours.close()
                raise NodeError("ForkServer", f"cannot start {self._entry[0]}: {error.strerror}") from error
        self._handle = Handle(os.pidfd_open(self._process.pid))
        self._handle.gone.add_done_callback(self._reap)
        self._channel = Channel(ours, self._heard, self._ended)
        try:
            async with asyncio.timeout(PATIENCE):
                await self._ready
        except TimeoutError:
            await self.close()
            raise NodeError("ForkServer", f"the fork-server said nothing for {PATIENCE:.0f} s; try again") from None
        except BaseException:
            await self.close()
            raise

    def _reap(self, gone: asyncio.Future[None]) -> None:
        if self._process is not None:
            self._process.wait()

    def _heard(self, message: Message, files: list[int]) -> None:
        close(files)
        if self._ready.done():
            return
        if "ready" in message:
            self._ready.set_result(None)
        else:
            self._ready.set_exception(as_error(message))

    def _ended(self) -> None:
        if not self._ready.done():
            self._ready.set_exception(NodeError("ForkServer", "the fork-server ended while it started; see the log"))

    def worker(self, *, tidies: bool = False) -> socket.socket:
        """A socket to a process that is forked now and waits to be told what to become. One that only takes something away may have
        the last open files of this process."""
        ours, its = pair(last=tidies)
        with its:
            try:
                if self._channel is None:
                    raise Refused("Gone", "the fork-server is not started")
                self._channel.send({"fork": True}, [its.fileno()])
            except (Refused, OSError) as error:
                ours.close()
                raise NodeError("ForkServer", f"the fork-server does not answer: {words(error)}") from error
        return ours

    async def once(self, order: Message, files: Sequence[int] = (), patience: float | None = PATIENCE) -> list[int]:
        """Has a worker do one thing; the answer is the files that it gives."""
        return (await self.ask(order, files, patience))[1]

    async def ask(
        self, order: Message, files: Sequence[int] = (), patience: float | None = PATIENCE
    ) -> tuple[Message, list[int]]:
        """The same; the answer is what it says, too."""
        answer: asyncio.Future[tuple[Message, list[int]]] = asyncio.get_running_loop().create_future()

        def heard(message: Message, given: list[int]) -> None:
            if answer.done() or "handle" in message:
                close(given)
            elif "done" in message:
                answer.set_result((message, given))
            else:
                close(given)
                answer.set_exception(as_error(message))

        def ended() -> None:
            if not answer.done():
                answer.set_exception(NodeError("ForkServer", f"a worker ended before it could {order['do']}"))

        channel = Channel(self.worker(tidies=order["do"] == "remove"), heard, ended)
        try:
            channel.send(order, files)
            async with asyncio.timeout(patience):
                return await answer
        except TimeoutError:
            raise NodeError("ForkServer", f"a worker took more than {patience} s to {order['do']}") from None
        except (Refused, OSError) as error:
            raise NodeError("ForkServer", f"a worker cannot be told to {order['do']}: {words(error)}") from error
        finally:
            channel.close()

    async def close(self) -> None:
        """With it ends everything that was forked from it."""
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


def pair(kind: int = socket.SOCK_SEQPACKET, *, last: bool = False) -> tuple[socket.socket, socket.socket]:
    """Two connected sockets; NodeError if they would be among the last open files of this process, unless those are for this."""
    try:
        ours, its = socket.socketpair(socket.AF_UNIX, kind)
    except OSError as error:
        raise NodeError("OutOfDescriptors", descriptors.told()) from error
    if not last and descriptors.scarce(max(ours.fileno(), its.fileno())):
        ours.close()
        its.close()
        raise NodeError("OutOfDescriptors", descriptors.told())
    return ours, its


def as_error(message: Message) -> NodeError:
    """What a worker refused, in its own words as far as they are words."""
    match message.get("refused"):
        case [str(reason), str(text)]:
            return NodeError(reason[:64], text[:4096])
    return NodeError("ForkServer", "a worker gave an answer that makes no sense")


def close(files: Sequence[int]) -> None:
    for file in files:
        with contextlib.suppress(OSError):
            os.close(file)
