"""That attempts which are not run without isolation could succeed: each is given, once, what it looks for."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys

from support.escape.talk import START, sources
from support.escape.world import FOREVER, OPEN_LABELS, World

THROUGH = """
import socket, sys
sock = socket.create_connection(("127.0.0.1", int(sys.argv[1])), timeout=20)
sock.sendall(b"CONNECT 10.0.0.1:80 HTTP/1.1\\r\\n\\r\\n")
sock.shutdown(socket.SHUT_WR)
said = b""
while part := sock.recv(4096):
    said += part
print(said.decode())
"""


async def a_policy_that_allows_all_lets_through(world: World) -> None:
    async with world.pod(world.workload(("sh", "-c", FOREVER), labels=OPEN_LABELS)) as uid:
        _, said = await world.python(uid, THROUGH, str(world.options.egress_port))
    assert world.token in said
    assert world.internet.dialled == ["10.0.0.1:80"]
    world.damage()  # it was meant to be noticed


async def a_leaked_file_is_noticed(world: World) -> None:
    leaked = os.open("/", os.O_RDONLY)
    given = json.dumps({"sources": sources(), "targets": {"tokens": []}})
    try:
        done = await asyncio.to_thread(
            subprocess.run, [sys.executable, "-c", START], input=f"{given}\nfiles_left_open\n", pass_fds=[leaked],
            capture_output=True, text=True, check=True,
        )  # fmt: skip
    finally:
        os.close(leaked)
    assert f"{leaked} -> /" in json.loads(done.stdout.splitlines()[1])["escaped"]


SCENARIOS = (a_policy_that_allows_all_lets_through, a_leaked_file_is_noticed)
