"""A process that goes on by itself: fed, read, signalled, waited for, from any connection."""

from __future__ import annotations

import json
import secrets
import time
from types import TracebackType
from typing import Self
from urllib.parse import quote

from sandpool.kube.errors import Unreachable
from sandpool.sdk._async.data_plane import DataPlane
from sandpool.sdk._async.follower import Follower, Patience
from sandpool.sdk._async.links import AnswerLink, Link
from sandpool.sdk._async.sources import plain
from sandpool.sdk.capture import Capture
from sandpool.sdk.command import shown
from sandpool.sdk.deadline import after, left
from sandpool.sdk.errors import (
    CommandError,
    CommandTimeout,
    NotReady,
    ProcessLost,
    ProcessNotFound,
    RouterError,
    SandboxError,
    SandboxRestarted,
    TimedOut,
)
from sandpool.sdk.fates import UNHEARD, Ran
from sandpool.sdk.outcome import checked, command_error
from sandpool.sdk.values import DEFAULT_MAX_OUTPUT, Exit, Output, ProcessInfo, Result
from sandpool.wire.paths import PROCESSES

PIECE = 1 << 20
"""Bytes of input that one request carries."""
LONGEST_WAIT = 30.0
"""Seconds of one request that waits for an end; a longer wait is several."""
ANSWER = 60.0
"""Seconds for a request that is answered at once."""


class AsyncInput:
    """The stdin of a process."""

    def __init__(self, process: AsyncProcess) -> None:
        self._process = process
        self._name = secrets.token_hex(8)  # so that what is sent again is known again
        self._sent = 0

    async def write(self, data: bytes | str) -> None:
        """Returns when the process has it in its pipe: one that does not read makes the writer wait. A connection that is lost
        meanwhile is made again, and nothing arrives twice."""
        body = plain(data) or b""
        for at in range(0, len(body), PIECE):
            piece = body[at : at + PIECE]
            await self._send(f"stdin?writer={self._name}&at={self._sent}", piece)
            self._sent += len(piece)

    async def close(self) -> None:
        """Says that nothing more will come."""
        await self._send("stdin?eof")

    async def _send(self, what: str, body: bytes = b"") -> None:
        patience = Patience()
        while True:
            try:
                await self._process._tell(what, body, timeout=None)
                return
            except CommandError:
                raise
            except Unreachable as error:
                await patience.after(error)


class AsyncProcess:
    """A process in the sandbox that outlives this handle. `box.start` makes one, `box.process(id)` comes back to it.

    `async for output in process` gives what it says, until its end. A connection that is lost is made again, and the output goes
    on where it was. While nobody reads, the process is not held up: the newest part of its output stays (`keep` bytes), and
    a later piece says how much before it was lost. While somebody reads, nothing is lost: a slow reader slows the process.

    As a context manager it ends the process when it is left; `close` only lets go of the connection.
    """

    def __init__(self, plane: DataPlane, info: ProcessInfo, position: int = 0) -> None:
        self.id = info.id
        self.pid = info.pid
        self.command = info.argv
        self.stdin = AsyncInput(self)
        self._plane = plane
        self._exit = info.exit
        self._ran = Ran(info.id, info.started or UNHEARD.started)
        self._follower = Follower(self._name, self._open, position)

    @property
    def _name(self) -> str:
        return f"{self._plane}: process {self.id} ({shown(self.command)})"

    @property
    def exit(self) -> Exit | None:
        """How it ended, as far as this handle knows; `poll` asks."""
        return self._exit or self._follower.exit

    @property
    def position(self) -> int:
        """Where the next piece of output begins: `box.process(id, position=...)` goes on from there."""
        return self._follower.position

    # What it says

    async def read(self, timeout: float | None = None) -> Output | None:
        """The next piece of its output; None when it has ended and all was read. TimedOut if none comes in time."""
        try:
            return await self._follower.next(timeout)
        except (RouterError, NotReady, SandboxRestarted) as error:
            raise await self._failed(error) from None
        except TimedOut:
            if timeout is None:  # not its silence: the connection
                raise
            raise TimedOut(f"{self._name}: no output within {timeout:g} s; it goes on") from None

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Output:
        output = await self.read()
        if output is None:
            raise StopAsyncIteration
        return output

    async def result(
        self, timeout: float | None = None, *, check: bool = False, max_output: int = DEFAULT_MAX_OUTPUT
    ) -> Result:
        """Reads to the end and gives it all, as `run` does. CommandTimeout if that takes longer; the process then goes on."""
        deadline = after(timeout)
        kept = {"stdout": Capture(max_output), "stderr": Capture(max_output)}
        lost = 0
        while True:
            try:
                output = await self.read(left(deadline))
            except TimedOut:
                said = kept["stdout"].done(), kept["stderr"].done()
                raise CommandTimeout(f"{self._name} has not ended within {timeout:g} s; it goes on", *said) from None
            if output is None:
                break
            lost += output.lost
            kept[output.stream].add(output.data)
        end = self._follower.exit
        assert end is not None
        out, err = kept["stdout"].done(), kept["stderr"].done()
        result = Result(self.command, end.code, out, err, end.signal, end.timed_out, lost, end.out_of_memory)
        return checked(result, str(self._plane)) if check else result

    # How it ends

    async def poll(self) -> int | None:
        """Its exit code if it has ended, else None."""
        if self.exit is None:
            self._exit = (await self.info()).exit
        return None if self.exit is None else self.exit.code

    async def wait(self, timeout: float | None = None) -> int:
        """Its exit code, once it has ended. CommandTimeout if it has not in time; it then goes on.

        Waiting does not read: output stays as much as `keep` says, and the process is not held up by it."""
        if self.exit is None:
            await self._follower.close()  # a reader that does not read would hold it up for ever
        patience, deadline = Patience(), after(timeout)
        while (end := self.exit) is None:
            seconds = LONGEST_WAIT if deadline is None else min(LONGEST_WAIT, deadline - time.monotonic())
            try:
                self._exit = (await self._look(f"?wait={max(0, int(seconds * 1000))}")).exit
                patience.progressed()
            except CommandError:
                raise
            except Unreachable as error:
                await patience.after(error)
            if seconds <= 0 and self._exit is None:
                raise CommandTimeout(f"{self._name} has not ended within {timeout:g} s; it goes on")
        return end.code

    async def info(self) -> ProcessInfo:
        """As the sandbox lists it now."""
        return await self._look("")

    async def signal(self, signal: str | int) -> None:
        """To the process and all of its group: a name such as "INT" or a number."""
        name = signal if isinstance(signal, str) else int(signal)
        await self._tell("signal", json.dumps({"signal": name}).encode())

    async def terminate(self) -> None:
        """Asks it to end (SIGTERM)."""
        await self.signal("TERM")

    async def kill(self) -> None:
        """Ends it (SIGKILL), with all of its group. `remove` also ends what has left that."""
        await self.signal("KILL")

    async def remove(self) -> None:
        """Ends it if it runs, with all that it has started, and lets the sandbox forget it and its output."""
        await self.close()
        try:
            await self._plane.request("DELETE", self._path(), timeout=ANSWER)
        except (RouterError, SandboxRestarted) as error:
            if not (isinstance(error, RouterError) and error.status == 404):
                raise await self._failed(error) from None

    async def close(self) -> None:
        """Lets go of the connection; the process goes on."""
        await self._follower.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self.remove()
        except SandboxError:
            if error is None:
                raise

    # Requests

    def _path(self, what: str = "") -> str:
        return f"{PROCESSES}/{quote(self.id, safe='')}" + (f"/{what}" if what else "")

    async def _open(self, position: int) -> Link:
        return await AnswerLink.open(self._plane, "GET", self._path(f"output?from={position}&follow"))

    async def _look(self, query: str) -> ProcessInfo:
        try:
            answer = await self._plane.request("GET", self._path() + query, timeout=ANSWER)
        except (RouterError, NotReady, SandboxRestarted) as error:
            raise await self._failed(error) from None
        return ProcessInfo.of(answer.json())

    async def _tell(self, what: str, body: bytes = b"", timeout: float | None = ANSWER) -> None:
        try:
            await self._plane.request("POST", self._path(what), body=body, timeout=timeout)
        except (RouterError, NotReady, SandboxRestarted) as error:
            raise await self._failed(error) from None

    async def _failed(self, error: RouterError | NotReady | SandboxRestarted) -> SandboxError:
        """ProcessLost if the sandbox was started again since, whatever was heard of it."""
        if isinstance(error, SandboxRestarted):
            return ProcessLost(f"{self._name}: it ended, for {error}", error.reason)
        if isinstance(error, RouterError):
            return await self._plane.explained(command_error(error, process=True), self._ran)
        unknown = ProcessNotFound(f"{self._name}: {error}")
        found = await self._plane.explained(unknown, self._ran)
        if found is unknown:
            return error
        self._plane.forget()
        return found
