"""Connections to pods by their addresses: where somebody listens, where nobody does, and where nobody may be led."""

from __future__ import annotations

import asyncio
import socket

import pytest

from sandpool.model.metadata import Uid
from sandpool.router.kubernetes import PodReach
from sandpool.router.ports import NoAnswer, Target


def a_target(address: str) -> Target:
    return Target("default", "box", Uid("u-1"), "box", address)


@pytest.mark.parametrize("address", ["127.0.0.1", "::1"])
async def test_it_connects(address: str) -> None:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.create_server((address, 0), family=family) as listener:
        port = listener.getsockname()[1]
        reach = PodReach(daemon_port=port, loopback=True)
        for connection in (await reach.port(a_target(address), port), await reach.daemon(a_target(address))):
            with connection:
                assert connection.getpeername()[:2] == (address, port)
                assert connection.gettimeout() == 0.0
                assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


async def test_where_nobody_listens_there_is_no_answer() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with pytest.raises(NoAnswer, match=f"port {port} of pod box: .*refused"):
        await PodReach(loopback=True).port(a_target("127.0.0.1"), port)


async def test_whoever_does_not_take_the_connection_is_not_waited_for() -> None:
    with socket.create_server(("127.0.0.1", 0), backlog=0) as listener:
        address = listener.getsockname()
        held = [socket.create_connection(address)]
        try:
            while True:  # until no more are taken
                one = socket.socket()
                held.append(one)
                one.settimeout(0.2)
                try:
                    one.connect(address)
                except TimeoutError:
                    break
            with pytest.raises(NoAnswer, match="no answer in time"):
                await PodReach(patience=0.05, loopback=True).port(a_target("127.0.0.1"), address[1])
        finally:
            for one in held:
                one.close()


async def test_one_who_gives_up_leaves_nothing_open() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        asked = asyncio.create_task(PodReach(loopback=True).port(a_target("127.0.0.1"), port))
        asked.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asked


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1", "::1", "::ffff:127.0.0.1", "0.0.0.0", "::", "169.254.169.254", "fe80::1", "224.0.0.1", "ff02::1",
        "255.255.255.255", "", "localhost", "box.default.svc", "10.0.0.1/8",
    ],
)  # fmt: skip
async def test_nobody_is_led_where_no_pod_is(address: str) -> None:
    with pytest.raises(NoAnswer, match="address"):
        await PodReach().port(a_target(address), 80)
