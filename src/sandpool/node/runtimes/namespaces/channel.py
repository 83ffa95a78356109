"""The main process's view of a forked process: its pidfd, and its end of the worker's socket.

A channel never waits for the peer and trusts nothing that it sends. Messages are queued while the socket is full. Invalid data closes the
channel.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
from collections import deque
from collections.abc import Callable, Sequence

from sandpool.node.runtimes.namespaces.forked import frames
from sandpool.node.runtimes.namespaces.forked.frames import Malformed, Message


def pid_of(handle: int) -> int | None:
    """The pid of a pidfd's process, as this process sees it; None if it has ended."""
    with open(f"/proc/self/fdinfo/{handle}") as file:
        said = [line.split()[1] for line in file if line.startswith("Pid:")]
    return int(said[0]) if said and int(said[0]) > 0 else None


class ProcessHandle:
    """Owns a pidfd. `gone` is done when the process has ended and, if it was pid 1, all processes of its namespace."""

    def __init__(self, file: int) -> None:
        self._loop = asyncio.get_running_loop()
        self._file = file
        self.gone: asyncio.Future[None] = self._loop.create_future()
        self._loop.add_reader(file, self._ended)

    def _ended(self) -> None:
        self._loop.remove_reader(self._file)
        os.close(self._file)
        self._file = -1
        if not self.gone.done():
            self.gone.set_result(None)

    @property
    def pid(self) -> int | None:
        """Its pid while it lives."""
        return pid_of(self._file) if self._file >= 0 else None

    def close(self) -> None:
        """Lets go of the process. `gone` is never done then."""
        if self._file >= 0:
            self._loop.remove_reader(self._file)
            os.close(self._file)
            self._file = -1

    def kill(self) -> None:
        if self._file >= 0:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._file, signal.SIGKILL)

    async def wait(self) -> None:
        await asyncio.shield(self.gone)


MOST_QUEUED = 1000

OnMessage = Callable[[Message, list[int]], object]


class Channel:
    """A socket to a worker, driven by the event loop."""

    def __init__(self, sock: socket.socket, on_message: OnMessage, ended: Callable[[], object]) -> None:
        """`on_message` owns the files of each message; `ended` is called once, unless `close` comes first."""
        self._sock = sock
        self._on_message = on_message
        self._ended = ended
        self._loop = asyncio.get_running_loop()
        self._queue: deque[tuple[bytes, list[int]]] = deque()
        self._open = True
        sock.setblocking(False)
        self._loop.add_reader(sock, self._readable)

    @property
    def open(self) -> bool:
        return self._open

    @property
    def ended(self) -> bool:
        """Whether the other side has closed the socket, even if the event loop has not noticed yet."""
        if not self._open:
            return True
        try:
            return not self._sock.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        except (BlockingIOError, InterruptedError):
            return False
        except OSError:
            return True

    def send(self, message: Message, files: Sequence[int] = ()) -> None:
        """Queues a message. Duplicates the files; the caller still owns its own. Refused if the message is too long or the channel has ended."""
        if not self._open:
            raise frames.Refused("Gone", "the process has ended")
        if len(self._queue) >= MOST_QUEUED:
            raise frames.Refused("Busy", "the sandbox does not answer; try again later")
        packet, memory = frames.encode(message)
        given = [] if memory is None else [memory]
        try:
            given.extend(os.dup(file) for file in files)
        except OSError:
            _close(given)
            raise
        self._queue.append((packet, given))
        if len(self._queue) == 1:
            self._write()

    def _write(self) -> None:
        while self._queue:
            packet, files = self._queue[0]
            try:
                frames.send_packet(self._sock, packet, files)
            except (BlockingIOError, InterruptedError):
                self._loop.add_writer(self._sock, self._write)
                return
            except OSError:
                self._end()
                return
            self._queue.popleft()
            _close(files)
        self._loop.remove_writer(self._sock)

    def _readable(self) -> None:
        try:
            received = frames.receive(self._sock)
        except (BlockingIOError, InterruptedError):
            return
        except (Malformed, OSError):
            received = None
        if received is None:
            self._end()
        else:
            self._on_message(*received)

    def drain(self) -> None:
        """Handles all received messages now. For use when the peer is known to be gone."""
        while self._open:
            try:
                received = frames.receive(self._sock)
            except (Malformed, OSError):
                return
            if received is None:
                return
            self._on_message(*received)

    def _end(self) -> None:
        if self._open:
            self.close()
            self._ended()

    def close(self) -> None:
        if not self._open:
            return
        self._open = False
        self._loop.remove_reader(self._sock)
        self._loop.remove_writer(self._sock)
        self._sock.close()
        for _, files in self._queue:
            _close(files)
        self._queue.clear()


def _close(files: list[int]) -> None:
    for file in files:
        os.close(file)
