"""The client of one supervisor: requests, responses, and the exit status of commands.

The supervisor and all that it starts have a mark in their environment. By that, a later process of the same installation finds what was left
if this process and the supervisor died together.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from sandpool.base.errors import NodeError
from sandpool.node.runtimes.contract import Ended, Stdio
from sandpool.node.runtimes.process import supervisor

MARK = "SANDPOOL_PROCESS_RUNTIME"
_LOST = Ended(137, signal=9, message="the process that supervised it is gone")
Json = dict[str, Any]


class SupervisorClient:
    """The processes of one container. The first command is the main one; everything ends with it."""

    def __init__(self, mark: str) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.setblocking(False)
        with theirs:
            self._process = subprocess.Popen(  # noqa: S603  # our own file
                [sys.executable, "-I", "-S", supervisor.__file__, str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                env={MARK: mark},
                start_new_session=True,
            )
        self._control = ours
        self._number = 0
        self._answers: dict[int, asyncio.Future[Json]] = {}
        self._ends: dict[int, asyncio.Future[Ended]] = {}  # by the number of the request that started the command
        self._main: int | None = None
        self._main_end = _LOST
        self.gone: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().add_reader(ours, self._read)

    async def start(self, plan: Mapping[str, Any], stdio: Stdio) -> tuple[int, asyncio.Future[Ended]]:
        """Starts a command; returns its pid and its exit. NodeError "StartError" if it cannot be started."""
        files = [fd for fd in (stdio.stdin, stdio.stdout, stdio.stderr) if fd is not None]
        indexes = {fd: index for index, fd in enumerate(files)}
        places = [None if fd is None else indexes[fd] for fd in (stdio.stdin, stdio.stdout, stdio.stderr)]
        ended: asyncio.Future[Ended] = asyncio.get_running_loop().create_future()
        with tempfile.TemporaryFile() as file:
            file.write(json.dumps({**plan, "stdio": places}).encode())
            file.flush()
            file.seek(0)
            number = self._number + 1
            self._ends[number] = ended
            if self._main is None:
                self._main = number
            answer = await self._ask({"do": "start"}, [file.fileno(), *files])
        if "error" in answer:
            self._ends.pop(number, None)
            raise NodeError("StartError", answer["error"])
        return answer["pid"], ended

    async def call(self, do: str, **fields: object) -> Json:
        """Sends a request and returns the response; empty if the supervisor is gone."""
        return await self._ask({"do": do, **fields})

    async def end(self) -> None:
        """Ends everything. When it returns, nothing is left, unless something could not be killed."""
        with contextlib.suppress(OSError):
            self._control.send(json.dumps({"do": "end", "id": 0}).encode())
        try:
            async with asyncio.timeout(10):
                await asyncio.shield(self.gone)
        except TimeoutError:
            raise NodeError(
                "KillFailed", f"processes below {self._process.pid} do not end; they may belong to another user"
            ) from None

    async def _ask(self, request: Json, fds: Iterable[int] = ()) -> Json:
        self._number += 1
        number = self._number
        answer: asyncio.Future[Json] = asyncio.get_running_loop().create_future()
        self._answers[number] = answer
        try:
            if self.gone.done():
                raise BrokenPipeError
            socket.send_fds(self._control, [json.dumps({**request, "id": number}).encode()], list(fds))
        except OSError as error:
            self._answers.pop(number, None)
            return {"error": f"the supervisor does not listen ({error.strerror or 'it has ended'})"}
        return await answer

    def _read(self) -> None:
        try:
            data = self._control.recv(supervisor.MAX_PACKET)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._end()
            return
        said = json.loads(data)
        if "ended" in said:
            self._ended(said["ended"], ended_by(said["status"]))
        elif (answer := self._answers.pop(said["id"], None)) is not None and not answer.done():
            answer.set_result(said)

    def _ended(self, number: int, end: Ended) -> None:
        if number == self._main:
            self._main_end = end  # reported when nothing of the container is left
        elif (future := self._ends.pop(number, None)) is not None:
            future.set_result(end)

    def _end(self) -> None:
        asyncio.get_running_loop().remove_reader(self._control)
        self._control.close()
        self._process.wait()  # it closed the socket by exiting
        for answer in self._answers.values():
            if not answer.done():
                answer.set_result({"error": "the container has ended"})
        for number, future in self._ends.items():
            future.set_result(self._main_end if number == self._main else Ended(137, signal=9))
        self._answers.clear()
        self._ends.clear()
        self.gone.set_result(None)


def ended_by(status: int) -> Ended:
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        return Ended(128 + number, signal=number)
    return Ended(os.WEXITSTATUS(status))


def reap(mark: str) -> int:
    """Kills what an earlier process left: all processes that carry the mark and all below them. Returns how many there were."""
    found: set[int] = set()
    while True:
        more = marked(mark) - found
        if not more:
            return len(found)
        for pid in more:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        found |= more


def marked(mark: str) -> set[int]:
    """Processes that carry the mark, and their descendants."""
    if not Path("/proc/self/stat").exists():
        return set()
    wanted = f"{MARK}={mark}".encode()
    table = supervisor.processes()
    found = set()
    for pid in table:
        try:
            fields = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        except OSError:
            continue
        if wanted in fields:
            found |= {pid, *supervisor.descendants(pid, table)}
    return found - {os.getpid()}
