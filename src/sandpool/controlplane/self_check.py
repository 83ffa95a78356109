"""Whether the API of this process still answers, asked from outside: over TLS, as any client does.

A process that is out of memory may be alive and deaf: connections break before anybody hears of an error. A slow one is not deaf, and
one that fails for another reason is for people to look at: only lack of memory is mended by a new start.
"""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from sandpool.controlplane.memory_pressure import MemoryGuard, caused_by_memory

EVERY: Final = 5.0  # seconds
PATIENCE: Final = 10.0  # seconds for an answer
DEAF: Final = 3
"""So many checks in a row that failed for lack of memory."""
SMALL: Final = "/api/v1/namespaces/default"
"""An object that is always there: it passes everything that a request passes."""


@dataclass(frozen=True, slots=True)
class ApiQuestion:
    """Calling it says whether it was answered well, or raises what went wrong on the way."""

    url: str
    token: str
    tls: ssl.SSLContext

    def __call__(self) -> bool:
        where = urlsplit(self.url)
        assert where.hostname is not None
        with (
            socket.create_connection((where.hostname, where.port or 443), PATIENCE) as plain,
            self.tls.wrap_socket(plain, server_hostname=where.hostname) as line,
        ):
            head = f"GET {SMALL} HTTP/1.1\r\nhost: {where.netloc}\r\nauthorization: Bearer {self.token}\r\n"
            line.sendall(f"{head}connection: close\r\n\r\n".encode())
            return line.recv(1024).startswith(b"HTTP/1.1 200 ")


def counted(before: int, *, good: bool, memory: bool) -> int:
    """Checks in a row that failed for lack of memory. One that failed for another reason says nothing about it."""
    return 0 if good else before + memory


class SelfCheck:
    """A thread of its own, there before it is needed."""

    def __init__(self, ask: Callable[[], bool], guard: MemoryGuard, every: float = EVERY) -> None:
        self._ask = ask
        self._guard = guard
        self._every = every
        self._refused = 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="sandpool-self-check", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        failed = 0
        while not self._over.wait(self._every):
            failed = counted(failed, **self._checked())
            if failed >= DEAF:
                self._guard.end(f"its own API refused or did not answer {DEAF} times in a row")
                return

    def _checked(self) -> dict[str, bool]:
        """What memory was refused before counts for as long as no answer is good: whatever broke then may be broken still."""
        cause = False
        try:
            good = self._ask()
        except Exception as error:
            good, cause = False, caused_by_memory(error)
        memory = cause or self._guard.short or self._guard.failures > self._refused
        if good:
            self._refused = self._guard.failures
        return {"good": good, "memory": memory}
