"""Servers that never come to an end: a request ends when its time is over, or sooner."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator

import pytest

from sandpool.sdk._sync.http import Http
from sandpool.sdk.errors import TimedOut, Unreachable  # type: ignore[attr-defined]
from sandpool.sdk.origin import read_origin

CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


@contextlib.contextmanager
def flood(beginning: bytes, again: bytes) -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            with contextlib.suppress(OSError):
                connection, _ = listening.accept()
                with connection:
                    connection.recv(1 << 16)
                    connection.sendall(beginning)
                    while True:
                        connection.sendall(again)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        finally:
            listening.shutdown(socket.SHUT_RDWR)
            thread.join()


@pytest.mark.parametrize(
    ("beginning", "again"),
    [(b"", b"HTTP/1.1 100 Continue\r\n\r\n" * 1000), (CHUNKED, b"1\r\na\r\n" * 1000)],
    ids=["announced", "tiny chunks"],
)
def test_a_request_ends(beginning: bytes, again: bytes) -> None:
    with flood(beginning, again) as url:
        http = Http(read_origin(url, "here"))
        try:
            with pytest.raises((TimedOut, Unreachable)):
                http.request("GET", "/", timeout=0.5)
        finally:
            http.close()
