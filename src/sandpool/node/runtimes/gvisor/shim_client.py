"""The main process's client of a sandbox's shim: requests with responses, and events that the shim sends."""

from __future__ import annotations

import asyncio
import itertools
import socket
from collections.abc import Callable, Sequence

from sandpool.base.errors import NodeError
from sandpool.node.runtimes.namespaces.channel import Channel, ProcessHandle
from sandpool.node.runtimes.namespaces.fork_server import as_error, close_files
from sandpool.node.runtimes.namespaces.forked.frames import Message, Refused, error_text

PATIENCE = 90.0

Answer = tuple[Message, list[int]]


class ShimClient:
    """Talks to one shim. `on_event` is called when commands end; `on_lost` once, when nothing of the sandbox runs any more."""

    def __init__(
        self, sock: socket.socket, on_event: Callable[[Message], object], on_lost: Callable[[], object]
    ) -> None:
        self._on_event = on_event
        self._on_lost = on_lost
        loop = asyncio.get_running_loop()
        self._channel = Channel(sock, self._on_message, self._ended)
        self._handle: ProcessHandle | None = None
        self._known: asyncio.Future[None] = loop.create_future()
        self._started: asyncio.Future[list[int]] = loop.create_future()
        self._over: asyncio.Future[None] = loop.create_future()
        self._answers: dict[int, asyncio.Future[Answer]] = {}
        self._numbers = itertools.count(1)

    @property
    def alive(self) -> bool:
        return not self._over.done()

    @property
    def pid(self) -> int | None:
        """The shim's pid on the machine."""
        return self._handle.pid if self._handle is not None else None

    async def begin(self, request: Message) -> list[int]:
        """Starts the sandbox; returns its open files. If it raises, nothing of the sandbox is left running."""
        try:
            self._channel.send(request)
            async with asyncio.timeout(PATIENCE):
                return await self._started
        except BaseException as error:
            self._started.cancel()
            await self.end()
            if isinstance(error, TimeoutError):
                raise NodeError("Gvisor", f"the sandbox did not start in {PATIENCE:.0f} s; try again") from None
            if isinstance(error, Refused | OSError):
                raise NodeError("Gvisor", f"the sandbox cannot be started: {error_text(error)}") from error
            raise

    async def end(self) -> None:
        """Kills the shim and everything in the sandbox, and waits for the end."""
        await asyncio.shield(self._known)
        if self._handle is not None:
            self._handle.kill()
        await asyncio.shield(self._over)

    def ask(self, request: Message, files: Sequence[int] = ()) -> asyncio.Future[Answer]:
        number = next(self._numbers)
        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        try:
            self._channel.send({**request, "id": number}, files)
        except (Refused, OSError) as error:
            raise NodeError("SandboxGone", f"the sandbox has ended or cannot be asked: {error_text(error)}") from error
        self._answers[number] = answer
        answer.add_done_callback(lambda done: self._answers.pop(number, None))  # also if the caller was cancelled
        return answer

    async def run(self, *argv: str) -> tuple[int, str, str]:
        """Runs a runsc command; returns its exit code, output and log."""
        message, files = await self.ask({"do": "run", "argv": argv})
        close_files(files)
        match message:
            case {"code": int(code), "said": str(said), "log": str(log)}:
                return code, said, log
        raise NodeError("Gvisor", "the keeper of a sandbox returned an unexpected answer")

    def _on_message(self, message: Message, files: list[int]) -> None:
        match message:
            case {"handle": _} if self._handle is None and files:
                self._handle = ProcessHandle(files.pop(0))
                self._handle.gone.add_done_callback(lambda future: self._conclude())
                self._known.set_result(None)
            case {"started": _} if not self._started.done():
                self._started.set_result(files)
                return
            case {"id": int(number)} if number in self._answers:
                self._answered(self._answers.pop(number), message, files)
                return
            case {"refused": _} if not self._started.done():
                self._started.set_exception(as_error(message))
            case {"gone": _}:
                self._ended()
            case _:
                self._on_event(message)
        close_files(files)

    def _answered(self, answer: asyncio.Future[Answer], message: Message, files: list[int]) -> None:
        if answer.done():
            close_files(files)
        elif "refused" in message:
            close_files(files)
            answer.set_exception(as_error(message))
        else:
            answer.set_result((message, files))

    def _ended(self) -> None:
        """Called when the channel is closed. The shim counts as ended when its pidfd says so."""
        if self._handle is None:
            self._conclude()
        else:
            self._handle.kill()

    def _conclude(self) -> None:
        self._channel.close()
        if self._over.done():
            return
        if not self._known.done():
            self._known.set_result(None)
        if not self._started.done():
            self._started.set_exception(NodeError("Gvisor", "the sandbox ended while it started"))
            self._started.exception()
        for answer in self._answers.values():
            if not answer.done():
                answer.set_exception(NodeError("SandboxGone", "the sandbox has ended"))
                answer.exception()
        self._answers.clear()
        self._over.set_result(None)
        self._on_lost()
