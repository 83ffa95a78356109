"""The main process's view of a running container, and of the commands started in it."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sandpool.base.errors import NodeError
from sandpool.node.backend import Unsupported
from sandpool.node.runtimes.contract import Ended, ExecPlan, Stdio
from sandpool.node.runtimes.namespaces import spawn_requests
from sandpool.node.runtimes.namespaces.channel import Channel, ProcessHandle
from sandpool.node.runtimes.namespaces.fork_server import as_error, close_files, socket_pair
from sandpool.node.runtimes.namespaces.forked import frames
from sandpool.node.runtimes.namespaces.forked.frames import Message, Refused, error_text
from sandpool.node.runtimes.namespaces.forked.init import MAIN

PATIENCE = 60.0
ANSWER = 10.0  # seconds for a response of a container's init
LOST = 137
FULL = ": out of memory. Raise its memory limit, or delete pods of its namespace that hold memory of ended ones"


@dataclass(frozen=True, slots=True)
class Lost:
    """Why a container ended that did not report its exit."""

    message: str
    with_all: bool = False  # all containers ended with it: not the container's fault


def as_ended(status: object, *, oom: bool = False) -> Ended:
    """Converts the wait status that init reports. Init is not trusted: an invalid status counts as a failure of the container."""
    if not isinstance(status, int) or not 0 <= status <= 0xFFFF:
        return Ended(LOST, 9, oom, "the container's init said nothing that makes sense")
    code = os.waitstatus_to_exitcode(status) if not os.WIFSTOPPED(status) else LOST
    return Ended(code) if code >= 0 else Ended(128 - code, -code, oom and code == -9)


class Command:
    """A command started by `exec`; also the base class of the container's main command."""

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
            await self._send({"do": "signal", "task": self._number, "signal": number})

    async def kill(self) -> None:
        if not self._ended.done():
            await self._send({"do": "kill", "task": self._number})

    async def _send(self, message: Message) -> None:
        try:
            _, files = await self._ask(message)
            close_files(files)
        except NodeError:
            if not self._ended.done():
                raise  # it was started, but the caller is gone

    def finish(self, ended: Ended) -> None:
        if not self._ended.done():
            self._ended.set_result(ended)

    def give_terminal(self, files: list[int]) -> None:
        self._terminal = files.pop(0) if files else None
        close_files(files)


class NamespaceContainer(Command):
    """A container and its main command. `ooms` returns how many of its processes were OOM-killed so far; `why` returns what ended the container
    if it did not end by itself."""

    def __init__(self, name: str, sock: socket.socket, ooms: Callable[[], int], why: Callable[[], Lost]) -> None:
        super().__init__(MAIN, self._request)
        self.name = name
        self.paused = False
        self.terminals = 0  # how many terminals it may have
        self.terminals_directory: int | None = None  # an open file; the code that waits for the exit closes it
        self._why = why
        self._count_ooms = ooms
        self._ooms = ooms()
        self._channel = Channel(sock, self._on_message, self._lost)
        self._handle: ProcessHandle | None = None
        self._known: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._started: asyncio.Future[list[int]] = asyncio.get_running_loop().create_future()
        self._boxd: socket.socket | None = None
        self._connected = False
        self._status: object = None
        self.exit_status: int | None = None  # of its init, if that was all that was found by a later process
        self.answers: dict[int, asyncio.Future[tuple[Message, list[int]]]] = {}
        self._commands: dict[int, Command] = {}
        self._numbers = itertools.count(time.monotonic_ns())  # init still knows those of an earlier process

    async def begin(self, request: Message, files: Sequence[int]) -> None:
        """Returns when the command runs. If it raises, nothing is left running."""
        try:
            self.send_request(request, files)
            async with asyncio.timeout(PATIENCE):
                given = await self._started
        except BaseException as error:
            self._started.cancel()
            await self.end()
            if self.terminals_directory is not None:
                os.close(self.terminals_directory)
            if isinstance(error, TimeoutError):
                raise NodeError(
                    "CreateContainerError", f"container {self.name!r} did not start in {PATIENCE:.0f} s"
                ) from None
            if isinstance(error, Refused | OSError):
                raise NodeError("CreateContainerError", f"container {self.name!r}: {error_text(error)}") from error
            raise
        self.give_terminal(given)

    def send_request(self, request: Message, files: Sequence[int]) -> None:
        """Sends the start request. A container that will be served also gets, as its last file, the channel of its prestarted boxd."""
        if not request.get("served"):
            self._channel.send(request, files)
            return
        self._boxd, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._boxd.setblocking(False)
        with its:
            self._channel.send(request, [*files, its.fileno()])

    def kept(self) -> tuple[Message, list[int]]:
        """What a later process needs to take it over: a value, and open files, which are named in the value."""
        files = {
            "terminal": self._terminal,
            "terminals": self.terminals_directory,
            "boxd": None if self._boxd is None else self._boxd.fileno(),
        }
        there = {name: file for name, file in files.items() if file is not None}
        return {"ooms": self._ooms, "quota": self.terminals, "files": list(there)}, list(there.values())

    def take_over(self, ooms: int, files: dict[str, int], handle: int | None, status: int | None) -> None:
        """The counterpart of `kept`, in a later process. `handle` is the pidfd of its init; None if it has exited, with `status`."""
        self._ooms = ooms
        self._terminal = files.pop("terminal", None)
        self.terminals_directory = files.pop("terminals", None)
        self._connected = True  # it may have been: what boxd started belongs to the pod
        if (boxd := files.pop("boxd", None)) is not None:
            self._boxd = socket.socket(fileno=boxd)
            self._boxd.setblocking(False)
        self._started.set_result([])
        self.exit_status = status
        if handle is None:
            self.conclude()
        else:
            self._on_message({"handle": True}, [handle])

    @property
    def pid(self) -> int | None:
        """The pid of its init, as the machine sees it."""
        return self._handle.pid if self._handle is not None else None

    def kill_nowait(self) -> None:
        """Sends SIGKILL without waiting for the end."""
        if self._handle is not None:
            self._handle.kill()

    async def end(self) -> None:
        """Kills the container with everything in it, and waits for the end."""
        await asyncio.shield(self._known)  # until the fork server sent the pidfd, or reported that the fork failed
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
            _, files = await self._request(
                spawn_requests.exec_request(plan, stdio, number), spawn_requests.stdio_files(stdio, tty=plan.tty)
            )
        except asyncio.CancelledError:
            self._abandon(number)
            raise
        except NodeError:
            self._commands.pop(number, None)
            raise
        command.give_terminal(files)
        return command

    def _abandon(self, number: int) -> None:
        """The caller is gone, but the command may just have been started: kill it."""
        try:
            self._request({"do": "kill", "task": number}).add_done_callback(_close_late)
        except NodeError:
            pass

    async def connect(self) -> socket.socket:
        self._awake()
        ours, its = socket_pair(socket.SOCK_STREAM)
        ours.setblocking(False)
        with its:
            try:
                if self.handed_to_boxd(its):
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
        close_files(files)
        return ours

    def handed_to_boxd(self, its: socket.socket) -> bool:
        """Passes the connection to the prestarted boxd, if it is still there; else init starts another one."""
        self._connected = True
        if self._boxd is None:
            return False
        try:
            frames.send_packet(self._boxd, b"+", [its.fileno()])
            return True
        except (BrokenPipeError, ConnectionResetError):
            self._close_boxd()
            return False
        except (
            OSError
        ) as error:  # keep the channel: boxd is alive, and without it would exit with everything it has started
            why = "" if isinstance(error, BlockingIOError) else f" ({error.strerror})"
            text = f"boxd in container {self.name!r} takes no connections{why}; try again later"
            raise NodeError("Busy", text) from None

    @property
    def boxd_waits(self) -> bool:
        """Whether boxd waits for its first connection. Until then it does not count as a process of the pod. One that never started, or
        that was killed inside, does not wait."""
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
        raise NodeError("Failed", f"container {self.name!r} sent an invalid response")

    def end_commands(self) -> None:
        """Ends the commands that an earlier process has started. Does not wait: a paused container does it when it is resumed."""
        with contextlib.suppress(NodeError):
            self._request({"do": "alone"}).add_done_callback(_close_late)

    async def signal_all(self, number: int) -> None:
        await self._asked({"do": "all", "signal": number})

    async def _asked(self, message: Message) -> Message:
        """Sends a request to init and returns its response, which comes at once unless init is stopped or starved; then it times out."""
        try:
            async with asyncio.timeout(ANSWER):
                said, files = await self._request(message)
        except TimeoutError:
            text = (
                f"container {self.name!r} gave no answer for {ANSWER:.0f} s; it may be stopped or out of processor time"
            )
            raise NodeError("Timeout", text) from None
        close_files(files)
        return said

    def _request(self, message: Message, files: Sequence[int] = ()) -> asyncio.Future[tuple[Message, list[int]]]:
        number = next(self._numbers)
        answer: asyncio.Future[tuple[Message, list[int]]] = asyncio.get_running_loop().create_future()
        try:
            self._channel.send({**message, "id": number}, files)
        except (Refused, OSError) as error:
            raise NodeError(
                "NotRunning", f"container {self.name!r} has ended or cannot be asked: {error_text(error)}"
            ) from error
        self.answers[number] = answer
        answer.add_done_callback(lambda done: self.answers.pop(number, None))  # also if the caller is gone
        return answer

    def _on_message(self, message: Message, files: list[int]) -> None:
        match message:
            case {"handle": _} if self._handle is None and files:
                self._handle = ProcessHandle(files.pop(0))
                self._handle.gone.add_done_callback(lambda future: self.conclude())
                self._known.set_result(None)
            case {"terminals": _} if self.terminals_directory is None and files and not self._started.done():
                self.terminals_directory = files.pop(0)
            case {"started": _} if not self._started.done():
                self._started.set_result(files)
                return
            case {"ended": int(number), "status": status}:
                self._command_ended(number, status)
            case {"id": int(number)} if number in self.answers:
                self._answered(self.answers.pop(number), message, files)
                return
            case {"refused": _} if not self._started.done():
                self._started.set_exception(as_error(message))
        close_files(files)

    def _answered(self, answer: asyncio.Future[tuple[Message, list[int]]], message: Message, files: list[int]) -> None:
        if answer.done():
            close_files(files)
        elif "refused" in message:
            close_files(files)
            answer.set_exception(as_error(message))
        else:
            answer.set_result((message, files))

    def _command_ended(self, number: int, status: object) -> None:
        if number == MAIN:
            self._status = status
        elif (command := self._commands.pop(number, None)) is not None:
            command.finish(as_ended(status, oom=self._count_ooms() > self._ooms))

    def _lost(self) -> None:
        """The channel is closed. The container counts as ended when the kernel says so (pidfd)."""
        if self._handle is None:
            self.conclude()
        else:
            self._handle.kill()  # it may have broken the protocol, and may not exit by itself

    def conclude(self) -> None:
        self._channel.drain()  # its last messages may still be queued
        self._channel.close()
        self._close_boxd()
        if not self._known.done():
            self._known.set_result(None)
        oom = self._count_ooms() > self._ooms
        status = self.exit_status if self._status is None else self._status
        if status is not None:
            ended = as_ended(status, oom=oom)
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
        for answer in self.answers.values():
            if not answer.done():
                answer.set_exception(NodeError("NotRunning", f"container {self.name!r} has ended"))
                answer.exception()
        self.answers.clear()
        for command in self._commands.values():
            command.finish(Ended(LOST, 9, oom, ended.message or "the container has ended", lost=ended.lost))
        self._commands.clear()
        self.finish(ended)


def _has_other_end(channel: socket.socket) -> bool:
    """Whether the peer of a channel, which never sends anything, is still open."""
    try:
        return bool(channel.recv(1, socket.MSG_PEEK))
    except BlockingIOError:
        return True
    except OSError:
        return False


def _close_late(answer: asyncio.Future[tuple[Message, list[int]]]) -> None:
    if not answer.cancelled() and answer.exception() is None:
        close_files(answer.result()[1])
