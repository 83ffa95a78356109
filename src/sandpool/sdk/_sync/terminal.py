# generated from sdk/_async/terminal.py by tools/unasync.py; edit that one
# ruff: noqa: C416, SIM110, SIM117, UP028, RUF100
"""A program on a terminal in the sandbox: its output, and what you type."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from sandpool.kube.errors import Unreachable
from sandpool.sdk._sync.data_plane import DataPlane
from sandpool.sdk._sync.follower import Follower, Patience
from sandpool.sdk._sync.frame_streams import FrameStream, WebSocketFrames
from sandpool.sdk._sync.process import Process
from sandpool.sdk._sync.sources import plain
from sandpool.sdk.errors import NotReady, RouterError, SandboxError, SandboxRestarted, TimedOut
from sandpool.sdk.values import Exit, ProcessInfo
from sandpool.wire.frames import Kind, encode


class Terminal:
    """A terminal with a program on it, by default a shell. One thread may read while another writes.

    `for data in terminal` yields its output until the program ends. A lost connection is reopened, and the output continues
    where it was. Leaving the `with`, or `close`, ends the program.
    """

    def __init__(self, plane: DataPlane, info: ProcessInfo, position: int = 0) -> None:
        self.id = info.id
        self._process = Process(plane, info, position)
        self._plane = plane
        self._name = f"{plane}: terminal {info.id}"
        self._follower = Follower(self._name, self._open, position)

    @property
    def exit(self) -> Exit | None:
        """How the program ended, known once `read` or `wait` has seen it."""
        return self._follower.exit or self._process.exit

    @property
    def position(self) -> int:
        """Where the next output begins; `box.terminal(id=..., position=...)` continues there."""
        return self._follower.position

    def read(self, timeout: float | None = None) -> bytes:
        """The next output, as soon as there is any; empty at the end. Raises TimedOut if nothing comes in time."""
        try:
            output = self._follower.next(timeout)
        except (RouterError, NotReady, SandboxRestarted) as error:
            raise self._process._failed(error) from None
        except TimedOut:
            if timeout is None:
                raise
            raise TimedOut(f"{self._name}: no output within {timeout:g} s") from None
        return b"" if output is None else output.data

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> bytes:
        data = self.read()
        if not data:
            raise StopIteration
        return data

    def write(self, data: bytes | str) -> None:
        """Types `data`."""
        self._send(Kind.STDIN, plain(data) or b"")

    def resize(self, cols: int, rows: int) -> None:
        """Changes the size; the program gets SIGWINCH."""
        self._send(Kind.RESIZE, encode({"cols": cols, "rows": rows}))

    def signal(self, signal: str | int) -> None:
        """Sends a signal to the program and its group. To interrupt what runs in the foreground of a shell, `write("\\x03")`."""
        self._process.signal(signal)

    def wait(self, timeout: float | None = None) -> int:
        """Waits for the program to end and returns its exit code. Output until then is discarded."""
        if self.exit is not None:
            return self.exit.code
        self._follower.close()
        return self._process.wait(timeout)

    def detach(self) -> None:
        """Closes the connection; the program continues. Reattach with `box.terminal(id=...)`."""
        self._follower.close()
        self._process.close()

    def close(self) -> None:
        """Kills the program, with everything it has started, and deletes its record."""
        self._follower.close()
        self._process.remove()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.close()
        except SandboxError:
            if error is None:
                raise

    def _open(self, position: int) -> FrameStream:
        return WebSocketFrames.open(self._plane, self._process._path(f"attach?from={position}"))

    def _send(self, kind: Kind, data: bytes) -> None:
        """Input typed while the connection is lost may not arrive; the terminal echoes it if it does."""
        patience = Patience()
        while self.exit is None:
            link = None
            try:
                link = self._follower.link()
                assert isinstance(link, WebSocketFrames)
                link.send(kind, data)
                return
            except (RouterError, NotReady, SandboxRestarted) as error:
                raise self._process._failed(error) from None
            except Unreachable as error:
                self._follower.drop(link)
                patience.after(error)
