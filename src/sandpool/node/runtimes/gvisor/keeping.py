"""The keeper of a sandbox as the main process sees it: questions with answers, and what it tells by itself."""

from __future__ import annotations

import asyncio
import itertools
import socket
from collections.abc import Callable, Sequence

from sandpool.base.errors import NodeError
from sandpool.node.runtimes.namespaces.channel import Channel
from sandpool.node.runtimes.namespaces.forked.frames import Message, Refused, words
from sandpool.node.runtimes.namespaces.handle import Handle
from sandpool.node.runtimes.namespaces.server import as_error, close

PATIENCE = 90.0

Answer = tuple[Message, list[int]]


class Keeper:
    """`told` hears of ends of commands; `lost` is called once, when nothing of the sandbox runs any more."""

    def __init__(self, sock: socket.socket, told: Callable[[Message], object], lost: Callable[[], object]) -> None:
        self._told = told
        self._lost = lost
        loop = asyncio.get_running_loop()
        self._channel = Channel(sock, self._heard, self._ended)
        self._handle: Handle | None = None
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
        """Of its process, on the machine."""
        return self._handle.pid if self._handle is not None else None

    async def begin(self, order: Message) -> list[int]:
        """The open files of a sandbox that runs; when it raises, nothing of it does."""
        try:
            self._channel.send(order)
            async with asyncio.timeout(PATIENCE):
                return await self._started
        except BaseException as error:
            self._started.cancel()
            await self.end()
            if isinstance(error, TimeoutError):
                raise NodeError("Gvisor", f"the sandbox did not start in {PATIENCE:.0f} s; try again") from None
            if isinstance(error, Refused | OSError):
                raise NodeError("Gvisor", f"the sandbox cannot be started: {words(error)}") from error
            raise

    async def end(self) -> None:
        """At once, and all that is in it."""
        await asyncio.shield(self._known)
        if self._handle is not None:
            self._handle.kill()
        await asyncio.shield(self._over)

    def ask(self, order: Message, files: Sequence[int] = ()) -> asyncio.Future[Answer]:
        number = next(self._numbers)
        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        try:
            self._channel.send({**order, "id": number}, files)
        except (Refused, OSError) as error:
            raise NodeError("SandboxGone", f"the sandbox has ended or cannot be asked: {words(error)}") from error
        self._answers[number] = answer
        answer.add_done_callback(lambda done: self._answers.pop(number, None))  # also if nobody waits for it any more
        return answer

    async def run(self, *argv: str) -> tuple[int, str, str]:
        """One command of runsc: its code, what it said, and its log."""
        message, files = await self.ask({"do": "run", "argv": argv})
        close(files)
        match message:
            case {"code": int(code), "said": str(said), "log": str(log)}:
                return code, said, log
        raise NodeError("Gvisor", "the keeper of a sandbox gave an answer that makes no sense")

    def _heard(self, message: Message, files: list[int]) -> None:
        match message:
            case {"handle": _} if self._handle is None and files:
                self._handle = Handle(files.pop(0))
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
                self._told(message)
        close(files)

    def _answered(self, answer: asyncio.Future[Answer], message: Message, files: list[int]) -> None:
        if answer.done():
            close(files)
        elif "refused" in message:
            close(files)
            answer.set_exception(as_error(message))
        else:
            answer.set_result((message, files))

    def _ended(self) -> None:
        """Nothing more is to be heard. It counts as ended when the kernel says so."""
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
        self._lost()
