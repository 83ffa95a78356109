"""A running container, and the commands that were started in it, as the main process sees them."""

from __future__ import annotations

import asyncio
import itertools
import os
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sandpool.base.errors import NodeError
from sandpool.node.backend import Unsupported
from sandpool.node.runtimes.contract import Ended, ExecPlan, Stdio
from sandpool.node.runtimes.namespaces import orders
from sandpool.node.runtimes.namespaces.channel import Channel
from sandpool.node.runtimes.namespaces.forked import frames
from sandpool.node.runtimes.namespaces.forked.frames import Message, Refused, words
from sandpool.node.runtimes.namespaces.forked.init import MAIN
from sandpool.node.runtimes.namespaces.handle import Handle
from sandpool.node.runtimes.namespaces.server import as_error, close, pair

PATIENCE = 60.0
ANSWER = 10.0  # seconds for what a container's init does by itself
LOST = 137
FULL = ": out of memory. Raise its memory limit, or delete pods of its namespace that hold memory of ended ones"


@dataclass(frozen=True, slots=True)
class Lost:
    """Why a container is gone of whose end nothing was heard."""

    message: str
    with_all: bool = False  # and with it all others: it is not the container's doing


def as_ended(status: object, *, oom: bool = False) -> Ended:
    """From what waitpid said inside; anything else is the end of somebody who cannot be believed."""
    if not isinstance(status, int) or not 0 <= status <= 0xFFFF:
        return Ended(LOST, 9, oom, "the container's init said nothing that makes sense")
    code = os.waitstatus_to_exitcode(status) if not os.WIFSTOPPED(status) else LOST
    return Ended(code) if code >= 0 else Ended(128 - code, -code, oom and code == -9)


class Command:
    """A command started by `exec`; also what the container's own command has in common with it."""

    def __init__(self, number: int, ask: Callable[[Message], asyncio.Future[tuple[Message, list[int]]]]) -> None:
        self._number = number
        self._ask = ask
        self._ended: asyncio.Future[Ended] = asyncio.get_running_loop().create_future()
        self._terminal: int | None = None

    @property
    def ended(self) -> asyncio.Future[Ended]:
        return self._ended

    @property
    def terminal(self) -> int | None:
        return self._terminal

    async def signal(self, number: int) -> None:
        if not self._ended.done():
            await self._tell({"do": "signal", "task": self._number, "signal": number})

    async def kill(self) -> None:
        if not self._ended.done():
            await self._tell({"do": "kill", "task": self._number})

    async def _tell(self, message: Message) -> None:
        try:
            _, files = await self._ask(message)
            close(files)
        except NodeError:
            if not self._ended.done():
                raise  # if it has: there was nobody to tell

    def finish(self, ended: Ended) -> None:
        if not self._ended.done():
            self._ended.set_result(ended)

    def give_terminal(self, files: list[int]) -> None:
        self._terminal = files.pop(0) if files else None
        close(files)


class NamespaceContainer(Command):
    """`ooms` counts the processes that the container's memory limit has ended so far; `why` says what ended it if it did not
    end by itself."""

    def __init__(self, name: str, sock: socket.socket, ooms: Callable[[], int], why: Callable[[], Lost]) -> None:
        super().__init__(MAIN, self._request)
        self.name = name
        self.paused = False
        self.terminals = 0  # that it may have
        self.terminals_folder: int | None = None  # open; whoever waits for the end closes it
        self._why = why
        self._count_ooms = ooms
        self._ooms = ooms()
        self._channel = Channel(sock, self._heard, self._lost)
        self._handle: Handle | None = None
        self._known: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._started: asyncio.Future[list[int]] = asyncio.get_running_loop().create_future()
        self._boxd: socket.socket | None = None
        self._connected = False
        self._status: object = None
        self._answers: dict[int, asyncio.Future[tuple[Message, list[int]]]] = {}
        self._commands: dict[int, Command] = {}
        self._numbers = itertools.count(1)

    async def begin(self, order: Message, files: Sequence[int]) -> None:
        """Returns when the command runs; when it raises, nothing of it does."""
        try:
            self._send_order(order, files)
            async with asyncio.timeout(PATIENCE):
                given = await self._started
        except BaseException as error:
            self._started.cancel()
            await self.end()
            if self.terminals_folder is not None:
                os.close(self.terminals_folder)
            if isinstance(error, TimeoutError):
                raise NodeError(
                    "CreateContainerError", f"container {self.name!r} did not start in {PATIENCE:.0f} s"
                ) from None
            if isinstance(error, Refused | OSError):
                raise NodeError("CreateContainerError", f"container {self.name!r}: {words(error)}") from error
            raise
        self.give_terminal(given)

    def _send_order(self, order: Message, files: Sequence[int]) -> None:
        """One that is to be served has, as its last file, a channel to the boxd that it gets ready."""
        if not order.get("served"):
            self._channel.send(order, files)
            return
        self._boxd, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._boxd.setblocking(False)
        with its:
            self._channel.send(order, [*files, its.fileno()])

    @property
    def pid(self) -> int | None:
        """Of its init, on the machine."""
        return self._handle.pid if self._handle is not None else None

    def doom(self) -> None:
        """Lets the kernel end it, without waiting for that."""
        if self._handle is not None:
            self._handle.kill()

    async def end(self) -> None:
        """At once, and all that is in it."""
        await asyncio.shield(self._known)  # the fork-server says who it is, or that it never came to be
        if self._handle is not None:
            self._handle.kill()
        await asyncio.shield(self._ended)

    async def kill(self) -> None:
        await self.end()

    async def exec(self, plan: ExecPlan, stdio: Stdio) -> Command:
        self._awake()
        number = next(self._numbers)
        command = Command(number, self._request)
        self._commands[number] = command
        try:
            _, files = await self._request(orders.execute(plan, stdio, number), orders.files(stdio, tty=plan.tty))
        except asyncio.CancelledError:
            self._abandon(number)
            raise
        except NodeError:
            self._commands.pop(number, None)
            raise
        command.give_terminal(files)
        return command

    def _abandon(self, number: int) -> None:
        """Nobody waits for it any more, but it may just have been started."""
        try:
            self._request({"do": "kill", "task": number}).add_done_callback(_close_late)
        except NodeError:
            pass

    async def connect(self) -> socket.socket:
        self._awake()
        ours, its = pair(socket.SOCK_STREAM)
        ours.setblocking(False)
        with its:
            try:
                if self._handed_to_boxd(its):
                    return ours
                _, files = await self._request({"do": "connect"}, [its.fileno()])
            except NodeError as error:
                ours.close()
                if error.reason == "Unsupported":
                    raise Unsupported("namespaces", "connect to boxd") from error
                raise
            except BaseException:
                ours.close()
                raise
        close(files)
        return ours

    def _handed_to_boxd(self, its: socket.socket) -> bool:
        """Straight to the boxd that was got ready, if it is still there; else the container's init starts another one."""
        self._connected = True
        if self._boxd is None:
            return False
        try:
            frames.send_packet(self._boxd, b"+", [its.fileno()])
            return True
        except (BrokenPipeError, ConnectionResetError):
            self._close_boxd()
            return False
        except OSError as error:  # it lives, and without its channel it would end, and with it all that it has started
            why = "" if isinstance(error, BlockingIOError) else f" ({error.strerror})"
            text = f"boxd in container {self.name!r} takes no connections{why}; try again later"
            raise NodeError("Busy", text) from None

    @property
    def boxd_waits(self) -> bool:
        """For its first connection: until then it is nobody's. One that never came to be, or that somebody inside has ended, does
        not wait."""
        return self._boxd is not None and not self._connected and _has_other_end(self._boxd)

    def _close_boxd(self) -> None:
        if self._boxd is not None:
            self._boxd.close()
            self._boxd = None

    def _awake(self) -> None:
        if self.paused:
            raise NodeError("Paused", f"container {self.name!r} is paused; resume it first")

    async def usage(self) -> tuple[float, int, int]:
        message = await self._asked({"do": "usage"})
        found = (message.get("seconds"), message.get("memory"), message.get("processes"))
        match found:
            case (int() | float() as seconds, int() as memory, int() as count):
                return float(seconds), memory, count
        raise NodeError("Failed", f"container {self.name!r} gave an answer that makes no sense")

    async def signal_all(self, number: int) -> None:
        await self._asked({"do": "all", "signal": number})

    async def _asked(self, message: Message) -> Message:
        """What the init answers, which it does at once unless it is stopped or starved; nobody waits longer for that."""
        try:
            async with asyncio.timeout(ANSWER):
                said, files = await self._request(message)
        except TimeoutError:
            text = (
                f"container {self.name!r} gave no answer for {ANSWER:.0f} s; it may be stopped or out of processor time"
            )
            raise NodeError("Timeout", text) from None
        close(files)
        return said

    def _request(self, message: Message, files: Sequence[int] = ()) -> asyncio.Future[tuple[Message, list[int]]]:
        number = next(self._numbers)
        answer: asyncio.Future[tuple[Message, list[int]]] = asyncio.get_running_loop().create_future()
        try:
            self._channel.send({**message, "id": number}, files)
        except (Refused, OSError) as error:
            raise NodeError(
                "NotRunning", f"container {self.name!r} has ended or cannot be asked: {words(error)}"
            ) from error
        self._answers[number] = answer
        answer.add_done_callback(lambda done: self._answers.pop(number, None))  # also if nobody waits for it any more
        return answer

    def _heard(self, message: Message, files: list[int]) -> None:
        match message:
            case {"handle": _} if self._handle is None and files:
                self._handle = Handle(files.pop(0))
                self._handle.gone.add_done_callback(lambda future: self._conclude())
                self._known.set_result(None)
            case {"terminals": _} if self.terminals_folder is None and files and not self._started.done():
                self.terminals_folder = files.pop(0)
            case {"started": _} if not self._started.done():
                self._started.set_result(files)
                return
            case {"ended": int(number), "status": status}:
                self._command_ended(number, status)
            case {"id": int(number)} if number in self._answers:
                self._answered(self._answers.pop(number), message, files)
                return
            case {"refused": _} if not self._started.done():
                self._started.set_exception(as_error(message))
        close(files)

    def _answered(self, answer: asyncio.Future[tuple[Message, list[int]]], message: Message, files: list[int]) -> None:
        if answer.done():
            close(files)
        elif "refused" in message:
            close(files)
            answer.set_exception(as_error(message))
        else:
            answer.set_result((message, files))

    def _command_ended(self, number: int, status: object) -> None:
        if number == MAIN:
            self._status = status
        elif (command := self._commands.pop(number, None)) is not None:
            command.finish(as_ended(status, oom=self._count_ooms() > self._ooms))

    def _lost(self) -> None:
        """Nothing more will be heard. It counts as ended when the kernel says so."""
        if self._handle is None:
            self._conclude()
        else:
            self._handle.kill()  # it may have talked nonsense, and may not go by itself

    def _conclude(self) -> None:
        self._channel.drain()  # its last words may still be on the way
        self._channel.close()
        self._close_boxd()
        if not self._known.done():
            self._known.set_result(None)
        oom = self._count_ooms() > self._ooms
        if self._status is not None:
            ended = as_ended(self._status, oom=oom)
        else:
            why = self._why()
            ended = Ended(LOST, 9, oom, "out of memory" if oom else why.message, lost=why.with_all and not oom)
        if not self._started.done():
            self._started.set_exception(
                NodeError(
                    "CreateContainerError", f"container {self.name!r} ended while it started{FULL if oom else ''}"
                )
            )
            self._started.exception()
        for answer in self._answers.values():
            if not answer.done():
                answer.set_exception(NodeError("NotRunning", f"container {self.name!r} has ended"))
                answer.exception()
        self._answers.clear()
        for command in self._commands.values():
            command.finish(Ended(LOST, 9, oom, ended.message or "the container has ended", lost=ended.lost))
        self._commands.clear()
        self.finish(ended)


def _has_other_end(channel: socket.socket) -> bool:
    """Of a channel over which nothing ever comes."""
    try:
        return bool(channel.recv(1, socket.MSG_PEEK))
    except BlockingIOError:
        return True
    except OSError:
        return False


def _close_late(answer: asyncio.Future[tuple[Message, list[int]]]) -> None:
    if not answer.cancelled() and answer.exception() is None:
        close(answer.result()[1])
