"""Declared ports of pods on this machine's loopback."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from sandpool.base.clock import SystemClock
from sandpool.base.errors import NodeError
from sandpool.node.network.addresses import listen
from sandpool.node.network.contract import Dial, NetworkOptions, NetworkRequest, Port
from sandpool.node.network.node_network import NodeNetwork
from sandpool.node.network.policy import Policies
from support.clocks.manual_clock import ManualClock
from support.node.outside_world import OutsideWorld, nobody_inside
from support.product.as_nobody import as_nobody

RANGE = "127.77.0.0/24"


def wanted(name: str, *ports: Port, address: str = "") -> NetworkRequest:
    return NetworkRequest(uid=f"uid-{name}", namespace="team", name=name, ports=ports, address=address)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("0.0.0.0", 0))
        port: int = probe.getsockname()[1]
        return port


@contextlib.asynccontextmanager
async def network(options: NetworkOptions = NetworkOptions(pods=RANGE)) -> AsyncIterator[NodeNetwork]:
    world = OutsideWorld()
    made = NodeNetwork(Policies(), SystemClock(), options, resolve=world.resolve, connect=world.connect)
    try:
        yield made
    finally:
        await made.close()


@contextlib.asynccontextmanager
async def inside() -> AsyncIterator[tuple[Dial, list[socket.socket]]]:
    """A "sandbox": what is dialled comes out at the other end of a pair."""
    ends: list[socket.socket] = []

    async def dial(port: int) -> socket.socket:
        near, far = socket.socketpair()
        near.setblocking(False)
        far.setblocking(False)
        ends.append(far)
        return near

    try:
        yield dial, ends
    finally:
        for end in ends:
            end.close()


async def appeared(ends: list[socket.socket], number: int = 1) -> socket.socket:
    while len(ends) < number:
        await asyncio.sleep(0)
    return ends[number - 1]


async def test_bytes_and_ends_go_both_ways() -> None:
    port = free_port()
    loop = asyncio.get_running_loop()
    async with network() as made, inside() as (dial, ends):
        pod = await made.attach(wanted("a", Port(port)), dial)
        reader, writer = await asyncio.open_connection(pod.address, port)
        end = await appeared(ends)
        writer.write(b"question")
        assert await loop.sock_recv(end, 100) == b"question"
        writer.write_eof()
        assert await loop.sock_recv(end, 100) == b"", "the end is passed on"
        await loop.sock_sendall(end, b"answer")
        assert await reader.readexactly(6) == b"answer"
        end.close()
        assert await reader.read() == b""
        writer.close()


async def test_a_slow_reader_holds_the_writer_back() -> None:
    port = free_port()
    async with network() as made, inside() as (dial, ends):
        pod = await made.attach(wanted("a", Port(port)), dial)
        _, writer = await asyncio.open_connection(pod.address, port)
        end = await appeared(ends)
        size = 64 * 1024 * 1024  # far more than all buffers of sockets together
        writer.write(b"x" * size)
        for _ in range(1000):
            await asyncio.sleep(0)
        assert writer.transport.get_write_buffer_size() > size / 2
        writer.write_eof()
        got = 0
        while data := await asyncio.get_running_loop().sock_recv(end, 1 << 20):
            got += len(data)
        assert got == size
        writer.close()


async def test_addresses_are_never_shared_and_come_back() -> None:
    port = free_port()
    async with network() as made, inside() as (dial, _):
        pods = [await made.attach(wanted(f"p{index}", Port(port)), dial) for index in range(20)]
        assert len({pod.address for pod in pods}) == 20
        assert all(pod.address.startswith("127.77.0.") for pod in pods)
        first = pods[0].address
        other = await made.attach(wanted("again", address=first), dial)
        assert other.address != first, "it is in use"
        await pods[0].close()
        await pods[0].close()
        again = await made.attach(wanted("again", Port(port), address=first), dial)
        assert again.address == first


async def test_all_in_use() -> None:
    async with network(NetworkOptions(pods="127.77.0.0/29")) as made:
        for index in range(6):
            await made.attach(wanted(f"p{index}"), nobody_inside)
        with pytest.raises(NodeError, match="NoAddress"):
            await made.attach(wanted("more"), nobody_inside)


async def test_an_address_on_which_somebody_else_listens_is_left_alone() -> None:
    """Another installation on the same machine hands out the same range."""
    port = free_port()
    async with network() as one, network() as two:
        first = await one.attach(wanted("a", Port(port)), nobody_inside)
        second = await two.attach(wanted("b", Port(port), address=first.address), nobody_inside)
        assert first.address != second.address
        assert len(second.notes) == 1


async def test_a_port_that_is_taken_everywhere_is_replaced_and_told() -> None:
    with socket.socket() as everywhere:
        everywhere.bind(("0.0.0.0", 0))
        everywhere.listen()
        port = everywhere.getsockname()[1]
        async with network() as made, inside() as (dial, ends):
            pod = await made.attach(wanted("a", Port(port), address="127.77.0.9"), dial)
            assert pod.address == "127.77.0.9"
            note = pod.notes[0]
            assert note.startswith(f"Port {port} is taken by another program of this machine, on all addresses")
            got = int(note.rsplit(":", 1)[1].rstrip("."))
            _, writer = await asyncio.open_connection(pod.address, got)
            await appeared(ends)
            writer.close()


@pytest.mark.ordinary_user
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_a_port_without_the_privilege_is_replaced_and_told() -> None:
    if int(Path("/proc/sys/net/ipv4/ip_unprivileged_port_start").read_text()) <= 443:
        pytest.skip("on this machine everybody may listen on such ports")

    def work() -> str:
        made = listen("127.77.0.3", (Port(80), Port(8080), Port(443)), replace=False)
        assert [each.port for each in made] == [8080, 443, 80]
        for each in made:
            each.listener.close()
        return "\n".join(each.note for each in made)

    said = as_nobody(work).split("\n")
    assert said[0] == ""
    assert said[1] == "Port 443 needs a privilege that this user lacks: it is reachable as 127.77.0.3:8443."
    assert said[2] == "Port 80 needs a privilege that this user lacks: it is reachable as 127.77.0.3:18080."


async def test_other_protocols_are_told() -> None:
    async with network() as made:
        pod = await made.attach(wanted("a", Port(53, protocol="UDP"), Port(99, protocol="SCTP")), nobody_inside)
        assert [note.split(" is ")[0] for note in pod.notes[:2]] == ["Port 99/SCTP", "Port 53/UDP"]


async def test_a_port_where_nobody_listens_inside_is_a_broken_connection() -> None:
    port = free_port()

    async def refused(_: int) -> socket.socket:
        raise NodeError("ConnectionRefused", "nobody listens")

    async with network() as made:
        pod = await made.attach(wanted("a", Port(port), Port(port)), refused)
        reader, writer = await asyncio.open_connection(pod.address, port)
        with pytest.raises(ConnectionResetError):
            await reader.read()
        writer.close()


async def test_no_more_connections_than_a_pod_may_have() -> None:
    port = free_port()
    async with network(NetworkOptions(pods=RANGE, pod_connections=3)) as made, inside() as (dial, ends):
        pod = await made.attach(wanted("a", Port(port)), dial)
        opened = [await asyncio.open_connection(pod.address, port) for _ in range(5)]
        await appeared(ends, 3)
        for _ in range(20):
            await asyncio.sleep(0)
        assert len(ends) == 3
        opened[0][1].close()
        ends[0].close()
        await appeared(ends, 4)
        for _, writer in opened:
            writer.close()


async def test_idle_connections_end() -> None:
    port, clock = free_port(), ManualClock()
    world = OutsideWorld()
    made = NodeNetwork(
        Policies(), clock, NetworkOptions(pods=RANGE, idle_timeout=10), resolve=world.resolve, connect=world.connect
    )
    async with inside() as (dial, ends):
        pod = await made.attach(wanted("a", Port(port)), dial)
        reader, writer = await asyncio.open_connection(pod.address, port)
        end = await appeared(ends)
        writer.write(b"x")
        assert await asyncio.get_running_loop().sock_recv(end, 1) == b"x"
        clock.advance(11)
        clock.advance(11)
        assert await reader.read() == b""
        writer.close()
        await made.close()


async def test_a_listener_is_there_again_at_once_after_a_close() -> None:
    """Connections of the earlier life linger in the kernel; they do not keep the next one from listening."""
    port = free_port()
    for _ in range(5):
        async with network() as made, inside() as (dial, ends):
            pod = await made.attach(wanted("a", Port(port), address="127.77.0.5"), dial)
            assert pod.address == "127.77.0.5"
            _, writer = await asyncio.open_connection(pod.address, port)
            await appeared(ends)
            writer.write(b"x")
            await pod.close()  # with a connection open: our side ends first
            writer.close()
            with pytest.raises(OSError):
                await asyncio.open_connection("127.77.0.5", port)


async def test_a_closed_pod_takes_no_way_out_any_more() -> None:
    async with network() as made:
        pod = await made.attach(wanted("a"), nobody_inside)
        await pod.close()
        late = socket.socket()
        pod.serve_egress(late)
        assert late.fileno() == -1


@pytest.mark.parametrize("pods", ["10.0.0.0/8", "127.0.0.0/8", "127.0.0.0/24"])
async def test_ranges_that_are_refused(pods: str) -> None:
    with pytest.raises(NodeError, match="BadOptions"):
        NodeNetwork(Policies(), SystemClock(), NetworkOptions(pods=pods))
