"""The parts that touch the real machine: its resolver, its routes, its sockets. Nothing here leaves loopback, even if it failed."""

from __future__ import annotations

import asyncio
import socket
import threading
from ipaddress import ip_address

import psutil
import pytest

from sandpool.base.clock import SystemClock
from sandpool.node.network.contract import NetworkRequest
from sandpool.node.network.egress.outside import connect, resolve
from sandpool.node.network.node_network import NodeNetwork
from sandpool.node.network.policy import Policies
from sandpool.node.network.route import Route, route
from support.api.policy_bodies import EVERYWHERE, LABELS, network_policy
from support.node.outside_world import Box, listening, nobody_inside


def own_addresses() -> list[str]:
    found = [each for addresses in psutil.net_if_addrs().values() for each in addresses]
    return [each.address.partition("%")[0] for each in found if each.family in (socket.AF_INET, socket.AF_INET6)]


def test_the_kernel_knows_the_machines_own_addresses() -> None:
    assert own_addresses()
    for text in own_addresses():
        assert route(ip_address(text)) is Route.LOCAL, text


def test_the_kernel_knows_what_is_no_single_host() -> None:
    assert route(ip_address("127.64.1.2")) is Route.LOCAL
    assert route(ip_address("255.255.255.255")) in (Route.BROADCAST, Route.NONE)
    assert route(ip_address("224.0.0.1")) in (Route.MULTICAST, Route.NONE)


async def threads_ended() -> None:
    """An answer is told before its thread has come to its end."""
    while any(thread.name == "sandpool-lookup" for thread in threading.enumerate()):
        await asyncio.sleep(0)


async def test_names_are_looked_up_in_a_thread_that_ends() -> None:
    assert ip_address("127.0.0.1") in await resolve("localhost")
    with pytest.raises(OSError):
        await resolve("x" * 64)  # no name at all: nobody is asked
    await threads_ended()


async def test_a_look_up_that_nobody_waits_for_any_more() -> None:
    asking = asyncio.ensure_future(resolve("localhost"))
    await asyncio.sleep(0)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    await threads_ended()


async def test_connecting() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        connection = await connect(ip_address("127.0.0.1"), port)
        assert connection.getpeername() == ("127.0.0.1", port)
        assert not connection.getblocking()
        connection.close()
    with pytest.raises(ConnectionRefusedError):
        await connect(ip_address("127.0.0.1"), port)


async def test_this_machine_is_out_of_reach_with_nothing_replaced() -> None:
    """The real resolver, dialler and routes, a policy that allows everything, and a listener on every address of the host."""
    policies = Policies()
    policies.put(network_policy(EVERYWHERE))
    network = NodeNetwork(policies, SystemClock())
    pod = await network.attach(NetworkRequest(uid="u", namespace="team", name="box", labels=LABELS), nobody_inside)
    way_out = listening()
    pod.serve_egress(way_out)
    box = Box(network, pod, policies, way_out.getsockname()[1])
    with socket.create_server(("::", 0), family=socket.AF_INET6, dualstack_ipv6=True) as target:
        target.setblocking(False)
        port = target.getsockname()[1]
        hosts = [f"[{text}]" if ":" in text else text for text in own_addresses()]
        for host in ("localhost", pod.address, "[::ffff:127.0.0.1]", *hosts):
            assert b"403 Forbidden" in await box.get(f"http://{host}:{port}/"), host
            assert b"403 Forbidden" in await box.tunnel(f"{host}:{port}"), host
        with pytest.raises(BlockingIOError):
            target.accept()
    await network.close()
