"""Which open files are the last."""

from __future__ import annotations

import asyncio
import os
import resource
import socket
import ssl
import struct
import subprocess
import sys

import pytest

from sandpool.base import open_files as descriptors
from sandpool.base.clock import SystemClock
from sandpool.base.errors import NodeError
from sandpool.base.open_files import connections_for, requests_for, router_connections_for
from sandpool.base.shares import Shares
from sandpool.controlplane.apiserver.limits import for_files
from sandpool.kube.errors import Refused
from sandpool.node.network.acceptor import Acceptor
from sandpool.node.network.slots import Slots
from sandpool.node.pods.pipes import StdioPipes
from sandpool.sdk._async.transport import Transport
from sandpool.sdk.origin import Origin


@pytest.mark.parametrize(("limit", "kept"), [(64, 16), (256, 64), (1024, 128), (4096, 512), (1 << 20, 1024)])
def test_an_eighth_is_kept_within_bounds(limit: int, kept: int) -> None:
    assert descriptors.kept(limit) == kept


def test_shares_leave_room() -> None:
    for files in (64, 256, 1024, 1 << 19):
        assert connections_for(files) <= max(16, files // 2)
        assert descriptors.sandboxes_for(files) * descriptors.EACH <= max(
            descriptors.EACH, files - descriptors.kept(files)
        )
        assert 8 <= for_files(files).connections <= max(8, files // 2)


SCRIPT = """
import os, resource
from sandpool.base import open_files as descriptors
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
taken = []
while not descriptors.few_left():
    taken.append(os.dup(2))
print(len(os.listdir("/proc/self/fd")) - 1, descriptors.scarce(taken[-1]), descriptors.scarce(os.dup(2)))
"""


def test_the_number_of_a_file_tells_how_many_are_left() -> None:
    said = subprocess.check_output([sys.executable, "-c", SCRIPT], text=True).split()
    assert said == ["48", "False", "True"]


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if every file were one of the last."""
    monkeypatch.setattr(resource, "getrlimit", lambda which: (4, 4))


@pytest.mark.usefixtures("few")
def test_pipes_for_a_command_are_refused_with_words() -> None:
    before = os.listdir("/proc/self/fd")
    with pytest.raises(NodeError, match="OutOfDescriptors: too many open files: the server may have 4, and the last"):
        StdioPipes(stdin=True)
    assert len(os.listdir("/proc/self/fd")) == len(before)


@pytest.mark.usefixtures("few")
async def test_a_connection_to_a_pod_is_closed_and_its_place_given_back() -> None:
    served: list[socket.socket] = []

    async def serve(connection: socket.socket) -> None:
        served.append(connection)

    listener = socket.create_server(("127.0.0.1", 0))
    slots = Slots(1)
    acceptor = Acceptor(listener, slots, serve, SystemClock())
    try:
        reader, writer = await asyncio.open_connection(*listener.getsockname())
        assert await reader.read() == b""
        writer.close()
        assert not served
        assert slots.take()
    finally:
        await acceptor.close()


@pytest.mark.parametrize("reset", [False, True])
async def test_a_server_that_hangs_up_in_the_handshake_is_not_blamed_for_its_certificate(reset: bool) -> None:
    async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        if reset:
            sock = writer.get_extra_info("socket")
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        else:
            await reader.read(1 << 16)
        writer.close()

    async with await asyncio.start_server(hang_up, "127.0.0.1", 0) as server:
        host, port = server.sockets[0].getsockname()
        with pytest.raises(
            Refused, match=r"hung up during the TLS handshake: .*too many connections or open files"
        ) as told:
            await Transport.connect(Origin("https", host, port), ssl.create_default_context(), None)
    assert "certificate" not in str(told.value)


@pytest.mark.parametrize("files", [64, 256, 1024, 4096, 8192, 20_000, 65_536, 1 << 30])
def test_a_tenant_of_the_router_leaves_connections_and_files_to_others(files: int) -> None:
    """Whatever it has under way: a client and a sandbox for each request, and a pipe between them."""
    alone = Shares(requests_for(files)).limit("greedy")
    assert alone < router_connections_for(files)
    assert 4 * alone <= files // 2 or files < 128
