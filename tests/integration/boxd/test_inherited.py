"""What a program finds open: stdin, stdout, stderr and nothing else, however boxd itself was reached and started."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from sandpool.wire.frames import CONTENT_TYPE, Frames, Kind
from support.network.boxd_daemon import TOKEN

SPECS: list[dict[str, Any]] = [{}, {"stdin": True}, {"terminal": {"cols": 80, "rows": 24}}]
LOOK = ["ls", "-l", "/proc/self/fd"]


def request(spec: dict[str, Any], more: str = "") -> bytes:
    body = json.dumps({"argv": LOOK, **spec}).encode()
    head = f"POST /box/v1/processes HTTP/1.1\r\nAccept: {CONTENT_TYPE}\r\nContent-Length: {len(body)}\r\n{more}\r\n"
    return head.encode() + body


def open_files(answer: bytes) -> set[str]:
    body, frames = answer.partition(b"\r\n\r\n")[2], b""
    while body:
        size, _, rest = body.partition(b"\r\n")
        frames += rest[: int(size, 16)]
        body = rest[int(size, 16) + 2 :]
    said = b"".join(frame.data for frame in Frames().feed(frames) if frame.kind is Kind.STDOUT).decode()
    links = [line.split()[-3:] for line in said.splitlines() if " -> " in line]
    return {
        name for name, _, target in links if not target.startswith("/proc/")
    }  # but for what the looking itself opens


FORKED = """
import os, socket, sys
from sandpool.boxd.forked import serve_forked
channel = socket.socket(fileno=int(sys.argv[1]))
channel.set_inheritable(False)
serve_forked(channel, dict(os.environ), sys.argv[2])
"""


@pytest.mark.parametrize("spec", SPECS)
def test_connections_that_are_handed_in_stay_with_boxd(tmp_path: Path, spec: dict[str, Any]) -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    command = [sys.executable, "-c", FORKED, str(theirs.fileno()), str(tmp_path)]
    with subprocess.Popen(command, pass_fds=(theirs.fileno(),)) as process:
        theirs.close()
        connections = []
        for _ in range(3):
            near, far = socket.socketpair()
            socket.send_fds(ours, [b"x"], [far.fileno()])
            far.close()
            connections.append(near)
        near.sendall(request(spec, "Connection: close\r\n"))
        answer = b"".join(iter(lambda: near.recv(65_536), b""))
        for end in (*connections, ours):
            end.close()
        assert process.wait(20) == 0
    assert open_files(answer) == {"0", "1", "2"}


@pytest.mark.parametrize("spec", SPECS)
def test_what_boxd_was_started_with_stays_with_it(tmp_path: Path, spec: dict[str, Any]) -> None:
    secret = os.open("/etc/hostname", os.O_RDONLY)
    os.set_inheritable(secret, True)
    command = [sys.executable, "-m", "sandpool.boxd", "--port", "0", "--root", str(tmp_path)]
    env = {**os.environ, "SANDPOOL_BOXD_TOKEN": TOKEN}
    with subprocess.Popen(command, env=env, stderr=subprocess.PIPE, text=True, pass_fds=(secret,)) as process:
        assert process.stderr is not None
        port = int(process.stderr.readline().split()[-1])
        with socket.create_connection(("127.0.0.1", port)) as connection:
            connection.sendall(request(spec, f"Connection: close\r\nAuthorization: Bearer {TOKEN}\r\n"))
            answer = b"".join(iter(lambda: connection.recv(65_536), b""))
        process.terminate()
    os.close(secret)
    assert open_files(answer) == {"0", "1", "2"}
