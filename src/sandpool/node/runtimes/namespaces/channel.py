"""The main process's end of a worker's socket. Never waits for the other side, and believes nothing that comes from it.

Messages are queued here while the socket is full. What is not a message ends the channel.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections import deque
from collections.abc import Callable, Sequence

from sandpool.node.runtimes.namespaces.forked import frames
from sandpool.node.runtimes.namespaces.forked.frames import Malformed, Message

MOST_QUEUED = 1000

Heard = Callable[[Message, list[int]], object]


class Channel:
    def __init__(self, sock: socket.socket, heard: Heard, ended: Callable[[], object]) -> None:
        """`heard` owns the files of each message; `ended` is called once, unless `close` comes first."""
        self._sock = sock
        self._heard = heard
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
        """Whether the other side has hung up, also if that was not heard of yet."""
        if not self._open:
            return True
        try:
            return not self._sock.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        except (BlockingIOError, InterruptedError):
            return False
        except OSError:
            return True

    def send(self, message: Message, files: Sequence[int] = ()) -> None:
        """The files are copied; the caller still owns its own. Refused if the message is too long or the channel is ended."""
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
            self._heard(*received)

    def drain(self) -> None:
        """Hears at once all that has come; for when the other side is known to be gone."""
        while self._open:
            try:
                received = frames.receive(self._sock)
            except (Malformed, OSError):
                return
            if received is None:
                return
            self._heard(*received)

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
