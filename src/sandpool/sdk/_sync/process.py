# generated from sdk/_async/process.py by tools/unasync.py; edit that one
# ruff: noqa: C416, SIM110, SIM117, UP028, RUF100
"""A background process: feed, read, signal and wait for it, from any connection."""

from __future__ import annotations

import json
import secrets
import time
from types import TracebackType
from typing import Self
from urllib.parse import quote

from sandpool.kube.errors import Unreachable
from sandpool.sdk._sync.data_plane import DataPlane
from sandpool.sdk._sync.follower import Follower, Patience
from sandpool.sdk._sync.frame_streams import FrameStream, ResponseFrames
from sandpool.sdk._sync.sources import plain
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
from sandpool.sdk.interruptions import UNKNOWN_RUN, LostRun
from sandpool.sdk.outcome import Capture, checked, command_error
from sandpool.sdk.values import DEFAULT_MAX_OUTPUT, Exit, Output, ProcessInfo, Result
from sandpool.wire.paths import PROCESSES

PIECE = 1 << 20
"""Bytes of input that one request carries."""
LONGEST_WAIT = 30.0
"""Seconds of one request that waits for an end; a longer wait is several."""
ANSWER = 60.0
"""Seconds for a request that is answered at once."""


class Input:
    """The stdin of a process."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._name = secrets.token_hex(8)  # so that the daemon recognises input that is sent again
        self._sent = 0

    def write(self, data: bytes | str) -> None:
        """Writes to the pipe of the process; waits while the process does not read. Reconnects if the connection is lost; nothing
        arrives twice."""
        body = plain(data) or b""
        for at in range(0, len(body), PIECE):
            piece = body[at : at + PIECE]
            self._send(f"stdin?writer={self._name}&at={self._sent}", piece)
            self._sent += len(piece)

    def close(self) -> None:
        """Closes stdin."""
        self._send("stdin?eof")

    def _send(self, what: str, body: bytes = b"") -> None:
        patience = Patience()
        while True:
            try:
                self._process._tell(what, body, timeout=None)
                return
            except CommandError:
                raise
            except Unreachable as error:
                patience.after(error)


class Process:
    """A process in the sandbox that outlives this handle. Start one with `box.start`, reattach with `box.process(id)`.

    `for output in process` yields its output until it ends. A lost connection is reopened, and the output continues where it
    was. While nobody reads, the process is not blocked: the newest `keep` bytes of its output are kept, and the next piece says
    how much before it was lost. While somebody reads, nothing is lost: a slow reader slows the process down.

    As a context manager it ends the process on exit; `close` only closes the connection.
    """

    def __init__(self, plane: DataPlane, info: ProcessInfo, position: int = 0) -> None:
        self.id = info.id
        self.pid = info.pid
        self.command = info.argv
        self.stdin = Input(self)
        self._plane = plane
        self._exit = info.exit
        self._ran = LostRun(info.id, info.started or UNKNOWN_RUN.started)
        self._follower = Follower(self._name, self._open, position)

    @property
    def _name(self) -> str:
        return f"{self._plane}: process {self.id} ({shown(self.command)})"

    @property
    def exit(self) -> Exit | None:
        """How it ended, as far as this handle knows; `poll` asks the sandbox."""
        return self._exit or self._follower.exit

    @property
    def position(self) -> int:
        """Where the next piece of output begins; `box.process(id, position=...)` continues there."""
        return self._follower.position

        # Output

    def read(self, timeout: float | None = None) -> Output | None:
        """The next piece of output; None when the process has ended and everything was read. Raises TimedOut if none comes in time."""
        try:
            return self._follower.next(timeout)
        except (RouterError, NotReady, SandboxRestarted) as error:
            raise self._failed(error) from None
        except TimedOut:
            if timeout is None:  # the connection timed out, not the process
                raise
            raise TimedOut(f"{self._name}: no output within {timeout:g} s; it keeps running") from None

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Output:
        output = self.read()
        if output is None:
            raise StopIteration
        return output

    def result(
        self, timeout: float | None = None, *, check: bool = False, max_output: int = DEFAULT_MAX_OUTPUT
    ) -> Result:
        """Reads to the end and returns everything, as `run` does. Raises CommandTimeout if that takes longer; the process continues."""
        deadline = after(timeout)
        kept = {"stdout": Capture(max_output), "stderr": Capture(max_output)}
        lost = 0
        while True:
            try:
                output = self.read(left(deadline))
            except TimedOut:
                said = kept["stdout"].done(), kept["stderr"].done()
                raise CommandTimeout(
                    f"{self._name} has not ended within {timeout:g} s; it keeps running", *said
                ) from None
            if output is None:
                break
            lost += output.lost
            kept[output.stream].add(output.data)
        end = self._follower.exit
        assert end is not None
        out, err = kept["stdout"].done(), kept["stderr"].done()
        result = Result(self.command, end.code, out, err, end.signal, end.timed_out, lost, end.out_of_memory)
        return checked(result, str(self._plane)) if check else result

        # Its end

    def poll(self) -> int | None:
        """Its exit code if it has ended, else None."""
        if self.exit is None:
            self._exit = (self.info()).exit
        return None if self.exit is None else self.exit.code

    def wait(self, timeout: float | None = None) -> int:
        """Waits for the process to end and returns its exit code. Raises CommandTimeout if it takes longer; the process continues.

        Waiting does not read: the newest `keep` bytes of output are kept, and the process is not blocked.
        """
        if self.exit is None:
            self._follower.close()  # an open stream that nobody reads would block the process for ever
        patience, deadline = Patience(), after(timeout)
        while (end := self.exit) is None:
            seconds = LONGEST_WAIT if deadline is None else min(LONGEST_WAIT, deadline - time.monotonic())
            try:
                self._exit = (self._look(f"?wait={max(0, int(seconds * 1000))}")).exit
                patience.progressed()
            except CommandError:
                raise
            except Unreachable as error:
                patience.after(error)
            if seconds <= 0 and self._exit is None:
                raise CommandTimeout(f"{self._name} has not ended within {timeout:g} s; it keeps running")
        return end.code

    def info(self) -> ProcessInfo:
        """The process as the sandbox lists it now."""
        return self._look("")

    def signal(self, signal: str | int) -> None:
        """Sends a signal to the process and its group: a name such as "INT", or a number."""
        name = signal if isinstance(signal, str) else int(signal)
        self._tell("signal", json.dumps({"signal": name}).encode())

    def terminate(self) -> None:
        """Asks it to end: sends SIGTERM."""
        self.signal("TERM")

    def kill(self) -> None:
        """Kills it and its group (SIGKILL). `remove` also kills what has left the group."""
        self.signal("KILL")

    def remove(self) -> None:
        """Kills the process if it runs, with everything it has started, and deletes its record and output."""
        self.close()
        try:
            self._plane.request("DELETE", self._path(), timeout=ANSWER)
        except (RouterError, SandboxRestarted) as error:
            if not (isinstance(error, RouterError) and error.status == 404):
                raise self._failed(error) from None

    def close(self) -> None:
        """Closes the connection; the process continues."""
        self._follower.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.remove()
        except SandboxError:
            if error is None:
                raise

                # Requests

    def _path(self, what: str = "") -> str:
        return f"{PROCESSES}/{quote(self.id, safe='')}" + (f"/{what}" if what else "")

    def _open(self, position: int) -> FrameStream:
        return ResponseFrames.open(self._plane, "GET", self._path(f"output?from={position}&follow"))

    def _look(self, query: str) -> ProcessInfo:
        try:
            answer = self._plane.request("GET", self._path() + query, timeout=ANSWER)
        except (RouterError, NotReady, SandboxRestarted) as error:
            raise self._failed(error) from None
        return ProcessInfo.of(answer.json())

    def _tell(self, what: str, body: bytes = b"", timeout: float | None = ANSWER) -> None:
        try:
            self._plane.request("POST", self._path(what), body=body, timeout=timeout)
        except (RouterError, NotReady, SandboxRestarted) as error:
            raise self._failed(error) from None

    def _failed(self, error: RouterError | NotReady | SandboxRestarted) -> SandboxError:
        """ProcessLost if the sandbox was restarted since."""
        if isinstance(error, SandboxRestarted):
            return ProcessLost(f"{self._name}: it ended, for {error}", error.reason)
        if isinstance(error, RouterError):
            return self._plane.explain(command_error(error, process=True), self._ran)
        unknown = ProcessNotFound(f"{self._name}: {error}")
        found = self._plane.explain(unknown, self._ran)
        if found is unknown:
            return error
        self._plane.forget()
        return found
