"""A sandbox that attacks the proxy itself: with garbage, slowness, size and number."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import socket
from ipaddress import ip_address

import pytest

from sandpool.node.network.contract import NetworkOptions
from sandpool.node.network.egress.http1 import MAX_HEAD
from sandpool.node.network.policy import Policies
from support.api.policy_bodies import EVERYWHERE, PUBLIC, network_policy
from support.clocks.manual_clock import ManualClock
from support.node.outside_world import Box, OutsideWorld, box_with


def allowing(egress: list[dict[str, object]] = PUBLIC) -> Policies:
    policies = Policies()
    policies.put(network_policy(egress))
    return policies


async def healthy(box: Box) -> bool:
    return (await box.get("http://1.1.1.1/")).endswith(b"hello")


async def test_garbage_is_answered_and_forgotten() -> None:
    dice = random.Random(7)
    seeds = [
        b"GET http://1.1.1.1/ HTTP/1.1\r\nA: b\r\n\r\n",
        b"CONNECT 1.1.1.1:443 HTTP/1.1\r\n\r\n",
        b"\x16\x03\x01\x02\x00",
    ]
    async with OutsideWorld().running() as world, box_with(world, allowing()) as box:
        for round_ in range(150):
            data = bytearray(dice.choice(seeds))
            for _ in range(dice.randrange(1, 6)):
                data.insert(dice.randrange(len(data) + 1), dice.randrange(256))
            answer = await box.ask(bytes(data), end=True)
            assert answer == b"" or answer.startswith(b"HTTP/1.1 "), (round_, bytes(data))
        assert not [address for address, _ in world.dialled if not ip_address(address).is_global]
        assert await healthy(box)


@pytest.mark.parametrize(
    "data",
    [
        b"GET http://1.1.1.1/" + b"a" * (MAX_HEAD + 10_000),
        b"GET http://1.1.1.1/ HTTP/1.1\r\n" + b"A: b\r\n" * 20_000,
        b"GET http://1.1.1.1/ HTTP/1.1\r\nA: " + b"b" * 1_000_000,
        b"\r\n" * 100_000,
        b"\x00" * 100_000,
    ],
)
async def test_heads_without_an_end_are_cut_off(data: bytes) -> None:
    async with OutsideWorld().running() as world, box_with(world, allowing()) as box:
        with contextlib.suppress(OSError):
            assert (await box.ask(data)).startswith(b"HTTP/1.1 4")
        assert world.dialled == []
        assert await healthy(box)


async def test_slow_heads_do_not_last() -> None:
    """Half of a head, for ever: the place is free again when its time is over."""
    options = NetworkOptions(egress_connections=2, head_timeout=0.1)
    async with OutsideWorld().running() as world, box_with(world, allowing(), options) as box:
        held = [await box.open() for _ in range(6)]
        for _, writer in held:
            writer.write(b"GET http://1.1.1.1/ HT")
        assert await healthy(box), "those before it were told to go"
        for reader, writer in held:
            assert (await reader.read()).startswith(b"HTTP/1.1 408 ")
            writer.close()


async def test_nobody_gets_more_places_than_its_own() -> None:
    waiting = asyncio.Event()
    most = 0

    async def hold(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal most
        most = max(most, len(world.dialled))
        await waiting.wait()
        await world.hello(reader, writer)

    async with (
        OutsideWorld().running() as world,
        box_with(world, allowing(), NetworkOptions(egress_connections=5)) as box,
    ):
        world.serve = hold
        asks = [asyncio.ensure_future(box.get("http://1.1.1.1/")) for _ in range(30)]
        while len(world.dialled) < 5:
            await asyncio.sleep(0)
        for _ in range(50):
            await asyncio.sleep(0)
        assert len(world.dialled) == 5
        waiting.set()
        assert all(answer.endswith(b"hello") for answer in await asyncio.gather(*asks))
        assert most > 0


async def test_thousands_of_connections() -> None:
    """More than there are places, many that ask for nothing, and all of them gone in the end."""
    options = NetworkOptions(egress_connections=64, egress_requests=1_000_000)
    async with OutsideWorld().running() as world, box_with(world, allowing(), options) as box:

        async def one(index: int) -> bool:
            if index % 3 == 0:
                connection = socket.create_connection(("127.0.0.1", box.port), timeout=30)
                connection.close()
                return True
            if index % 3 == 1:
                return b"403" in await box.get("http://127.0.0.1/")
            return await healthy(box)

        for start in range(0, 2000, 400):
            assert all(await asyncio.gather(*map(one, range(start, start + 400))))
        assert await healthy(box)


async def test_one_pod_does_not_take_the_places_of_another() -> None:
    options = NetworkOptions(connections=40, egress_connections=10, head_timeout=60)
    async with OutsideWorld().running() as world, box_with(world, allowing(), options) as box:
        held = [await box.open() for _ in range(50)]
        for _, writer in held:
            writer.write(b"GET ")
        async with box_with(world, allowing(), options) as other:
            assert await healthy(other)
        for _, writer in held:
            writer.close()


async def test_half_open_connections_end_by_their_idle_time() -> None:
    clock = ManualClock()
    async with (
        OutsideWorld().running() as world,
        box_with(world, allowing(), NetworkOptions(idle_timeout=60), clock) as box,
    ):
        arrived = asyncio.Event()

        async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readexactly(1)
            arrived.set()
            await reader.read()

        world.serve = silent
        reader, writer = await box.open()
        writer.write(b"CONNECT 1.1.1.1:443 HTTP/1.1\r\n\r\n")
        assert b" 200 " in await reader.readuntil(b"\r\n\r\n")
        clock.advance(59)
        writer.write(b"x")
        await arrived.wait()
        clock.advance(59)
        assert not reader.at_eof(), "the byte counted"
        clock.advance(61)
        clock.advance(61)
        assert await reader.read() == b""
        writer.close()


async def test_a_client_that_does_not_read_holds_the_origin_back() -> None:
    sent = 0

    async def flood(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        while True:
            writer.write(b"x" * 65536)
            await writer.drain()
            sent += 65536

    async with OutsideWorld().running() as world, box_with(world, allowing()) as box:
        world.serve = flood
        connection = socket.socket()
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.connect(("127.0.0.1", box.port))
        connection.sendall(b"GET http://1.1.1.1/ HTTP/1.1\r\n\r\n")
        still = 0
        while sent == 0 or still < 300:  # turns of the loop in which nothing was sent
            before = sent
            await asyncio.sleep(0)
            still = still + 1 if sent == before else 0
            assert sent < 64 * 1024 * 1024, "only what fits into the buffers of sockets"
        world.serve = world.hello
        assert await healthy(box)
        connection.close()


async def test_the_rate_is_held() -> None:
    """By the clock that the proxy is given: nothing moves on while it stands still and the burst is used up."""
    clock = ManualClock()
    rate = 1_000_000

    async def large(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * rate)

    options = NetworkOptions(egress_rate=rate, idle_timeout=3600)
    async with OutsideWorld().running() as world, box_with(world, allowing(), options, clock) as box:
        world.serve = large
        reader, writer = await box.open()
        writer.write(b"GET http://1.1.1.1/ HTTP/1.1\r\n\r\n")
        got = 0
        while True:
            reading = asyncio.ensure_future(reader.read(1 << 20))
            while not reading.done():
                clock.advance(0.01)
                await asyncio.sleep(0)
            if not reading.result():
                break
            got += len(reading.result())
            assert got <= rate / 4 + rate * clock.monotonic() + 65536
        assert got > rate
        writer.close()


async def test_new_requests_come_no_faster_than_they_may() -> None:
    clock = ManualClock()
    async with (
        OutsideWorld().running() as world,
        box_with(world, allowing(), NetworkOptions(egress_requests=2), clock) as box,
    ):
        asks = [asyncio.ensure_future(box.get("http://1.1.1.1/")) for _ in range(10)]
        while sum(ask.done() for ask in asks) < 6:
            await asyncio.sleep(0)
        for _ in range(200):
            await asyncio.sleep(0)
        assert len(world.dialled) == 6, "the burst"
        while not all(ask.done() for ask in asks):
            clock.advance(0.1)
            await asyncio.sleep(0)
            assert len(world.dialled) <= 6 + 2 * clock.monotonic() + 1
        assert len(world.dialled) == 10


async def test_names_that_hang_take_nobody_elses_place() -> None:
    options = NetworkOptions(lookups=2, total_lookups=3, lookup_timeout=60)
    async with OutsideWorld().running() as world, box_with(world, allowing(), options) as box:
        world.hang = asyncio.Event()
        asks = [asyncio.ensure_future(box.get(f"http://n{index}.example/")) for index in range(10)]
        while len(world.asked) < 2:
            await asyncio.sleep(0)
        for _ in range(100):
            await asyncio.sleep(0)
        assert len(world.asked) == 2
        assert await healthy(box), "an address needs no look-up"
        world.hang.set()
        assert all(b"502" in answer for answer in await asyncio.gather(*asks))


async def test_refusals_are_written_down_but_not_paths_credentials_or_floods(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "sandpool")
    async with OutsideWorld().running() as world, box_with(world, allowing(), clock=ManualClock()) as box:
        for _ in range(50):
            await box.ask(
                b"GET http://10.0.0.1/secret-path?key=hunter2 HTTP/1.1\r\nAuthorization: Bearer hunter3\r\n\r\n"
            )
        assert box.network.counts()["Policy"] == 50
        assert world.dialled == []
    lines = [record for record in caplog.records if record.message == "egress refused"]
    assert len(lines) == 5
    said = str([vars(line) for line in lines])
    assert "10.0.0.1:80" in said
    assert "team/box" in said
    assert not any(word in said for word in ("secret-path", "hunter2", "hunter3"))


async def test_closing_leaves_nothing_whatever_is_under_way() -> None:
    """The leak checks of conftest.py look for the rest: files, threads."""
    async with OutsideWorld().running() as world:
        world.hang = asyncio.Event()
        async with box_with(world, allowing(EVERYWHERE)) as box:
            held = [await box.open() for _ in range(4)]
            for (_, writer), data in zip(
                held,
                (b"", b"GET htt", b"GET http://hangs.example/ HTTP/1.1\r\n\r\n", b"CONNECT 1.1.1.1:1 HTTP/1.1\r\n\r\n"),
                strict=True,
            ):
                writer.write(data)
            while not world.asked or not world.dialled:
                await asyncio.sleep(0)
        for reader, writer in held:
            with contextlib.suppress(OSError):
                await reader.read()
            writer.close()
    left = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    assert not left


async def test_look_ups_that_hang_do_not_pile_up() -> None:
    """Each holds its place until it really ends; those that never began are forgotten with their request."""
    options = NetworkOptions(lookups=2, total_lookups=3, lookup_timeout=0.02)
    async with OutsideWorld().running() as world, box_with(world, allowing(), options) as box:
        world.hang = asyncio.Event()
        before = len(asyncio.all_tasks())
        for _ in range(5):
            asks = [box.get(f"http://n{index}.example/") for index in range(10)]
            assert all(b"504" in answer for answer in await asyncio.gather(*asks))
        assert len(world.asked) == 2
        while len(asyncio.all_tasks()) > before + 2:
            await asyncio.sleep(0)
        world.hang.set()
        world.names["fine.example"] = [["1.1.1.1"]]
        assert (await box.get("http://fine.example/")).endswith(b"hello")
