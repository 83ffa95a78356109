"""A real boxd in a process of its own, and a client that speaks to it with the standard library."""

from __future__ import annotations

import http.client
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sandpool.wire.frames import CONTENT_TYPE, Frame, Frames, Kind, message, read_message
from sandpool.wire.websocket import Opcode

TOKEN = "a-token-of-the-tests"


@dataclass(frozen=True)
class Answer:
    status: int
    body: bytes
    headers: dict[str, str]

    @property
    def value(self) -> Any:
        return json.loads(self.body)


@dataclass(frozen=True)
class Run:
    stdout: bytes
    stderr: bytes
    exit: dict[str, Any]
    lost: int = 0


class Daemon:
    def __init__(self, port: int, root: Path, process: subprocess.Popen[str], announced: dict[str, int]) -> None:
        self.announced = announced
        self.port = port
        self.root = root
        self.process = process

    def connect(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)

    def ask(self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None) -> Answer:
        connection = self.connect()
        try:
            connection.request(method, path, body, {"Authorization": f"Bearer {TOKEN}", **(headers or {})})
            response = connection.getresponse()
            return Answer(response.status, response.read(), {k.lower(): v for k, v in response.getheaders()})
        finally:
            connection.close()

    def start(self, **spec: Any) -> Any:
        answer = self.ask("POST", "/box/v1/processes", json.dumps({"detach": True, **spec}))
        assert answer.status == 201, answer
        return answer.value

    def run(self, **spec: Any) -> Run:
        answer = self.ask("POST", "/box/v1/processes", json.dumps(spec), {"Accept": CONTENT_TYPE})
        assert answer.status == 200, answer
        return told(Frames().feed(answer.body))

    def output(self, id: str, query: str = "follow") -> list[Frame]:
        return Frames().feed(self.ask("GET", f"/box/v1/processes/{id}/output?{query}").body)

    def state(self, id: str) -> Any:
        return self.ask("GET", f"/box/v1/processes/{id}").value

    def tell(self, id: str, what: str, body: Any = None) -> Answer:
        return self.ask("POST", f"/box/v1/processes/{id}/{what}", body)

    def open(self, request: str) -> socket.socket:
        """A raw connection on which this head has been sent."""
        connection = socket.create_connection(("127.0.0.1", self.port), timeout=60)
        connection.sendall(f"{request}\r\nAuthorization: Bearer {TOKEN}\r\n\r\n".encode())
        return connection

    def attach(self, id: str, query: str = "") -> Attachment:
        head = (
            f"GET /box/v1/processes/{id}/attach?{query} HTTP/1.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=="
        )
        return Attachment(self.open(head))


class Attachment:
    """A WebSocket to one process, spoken by hand."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self._file = connection.makefile("rb")
        assert b" 101 " in self._file.readline()
        while self._file.readline() != b"\r\n":
            pass

    def send(self, kind: Kind, data: bytes = b"") -> None:
        payload = message(kind, data)
        mask = os.urandom(4)
        head = bytes([0x82, 0x80 | 126]) + len(payload).to_bytes(2, "big")
        self.connection.sendall(head + mask + bytes(byte ^ mask[at % 4] for at, byte in enumerate(payload)))

    def receive(self) -> Frame | None:
        """The next frame; None when the daemon closes the conversation."""
        first, second = self._file.read(2)
        length = second & 0x7F
        if length >= 126:
            length = int.from_bytes(self._file.read(2 if length == 126 else 8), "big")
        data = self._file.read(length)
        return None if first & 0x0F == Opcode.CLOSE else read_message(data)

    def all(self) -> list[Frame]:
        found = []
        while (frame := self.receive()) is not None:
            found.append(frame)
        return found

    def until(self, words: bytes) -> bytes:
        said = b""
        while words not in said:
            frame = self.receive()
            assert frame is not None, said
            said += frame.data if frame.kind in (Kind.STDOUT, Kind.STDERR) else b""
        return said

    def close(self) -> None:
        self._file.close()
        self.connection.close()


def gone(pid: int, patience: float = 20) -> bool:
    """Whether a process ends within the time; a zombie has ended."""
    end = time.monotonic() + patience
    while time.monotonic() < end:
        try:
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX":
                return True
        except FileNotFoundError:
            return True
        time.sleep(0.01)
    return False


def told(frames: list[Frame]) -> Run:
    def joined(kind: Kind) -> bytes:
        return b"".join(frame.data for frame in frames if frame.kind is kind)

    (end,) = (frame.value for frame in frames if frame.kind is Kind.EXIT)
    lost = sum(frame.value["bytes"] for frame in frames if frame.kind is Kind.LOST)
    return Run(joined(Kind.STDOUT), joined(Kind.STDERR), end, lost)


@contextmanager
def boxd(root: Path, *flags: str) -> Iterator[Daemon]:
    env = {**os.environ, "SANDPOOL_BOXD_TOKEN": TOKEN, "SANDBOX_COLOUR": "green", "SANDBOX_API_KEY": "hidden"}
    command = [
        sys.executable,
        "-X",
        "dev",
        "-W",
        "error",
        "-m",
        "sandpool.boxd",
        "--port",
        "0",
        "--root",
        str(root),
        *flags,
    ]
    with subprocess.Popen(command, env=env, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        announced: dict[str, int] = {}
        while "listening" not in announced:
            words = process.stderr.readline().split()
            assert words, "it ended before it listened"
            if words[0] == "boxd:":  # on a busy machine asyncio complains about slow steps too
                announced[words[1]] = int(words[-1])
        try:
            yield Daemon(announced["listening"], root, process, announced)
        finally:
            process.terminate()
            code = process.wait(30)
            said = process.stderr.read()
    assert code == 0, said
    assert "Traceback" not in said, said
    assert "Warning" not in said, said
