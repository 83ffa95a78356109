"""The proxy as a sandbox meets it. The outside is the test's own: see support/node/outside_world.py."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from sandpool.node.network.contract import NetworkOptions
from sandpool.node.network.policy import Policies
from sandpool.node.network.relay import reset
from support.api.policy_bodies import EVERYWHERE, LABELS, PUBLIC, network_policy, to_block
from support.node.outside_world import HELLO, Box, OutsideWorld, box_with


@pytest.fixture
async def world() -> AsyncIterator[OutsideWorld]:
    made = OutsideWorld()
    made.names = {"example.com": [["1.1.1.1"]], "intern.example": [["10.0.0.5"]]}
    async with made.running():
        yield made


@pytest.fixture
async def box(world: OutsideWorld) -> AsyncIterator[Box]:
    policies = Policies()
    policies.put(network_policy(PUBLIC))
    async with box_with(world, policies) as made:
        yield made


async def test_a_request_goes_to_the_judged_address(world: OutsideWorld, box: Box) -> None:
    answer = await box.get("http://example.com/x?y=z")
    assert answer == b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\nconnection: close\r\n\r\nhello"
    assert world.dialled == [("1.1.1.1", 80)]
    assert world.requests == [b"GET /x?y=z HTTP/1.1\r\nhost: example.com\r\nconnection: close\r\n\r\n"]
    assert box.network.counts()["connected"] == 1


async def test_a_tunnel_to_any_port(world: OutsideWorld, box: Box) -> None:
    for port in (443, 22, 65535):
        assert await box.tunnel(f"example.com:{port}") == HELLO
    assert [port for _, port in world.dialled] == [443, 22, 65535]


async def test_a_tunnel_only_to_the_ports_of_the_policy(world: OutsideWorld, box: Box) -> None:
    box.policies.put(network_policy([to_block("0.0.0.0/0", ports=[{"port": 443}])]))
    assert await box.tunnel("example.com:443") == HELLO
    refused = await box.tunnel("example.com:22")
    assert refused.startswith(b"HTTP/1.1 403 ")
    assert b"port 22 is not allowed by NetworkPolicy team/out" in refused
    assert len(world.asked) == 1, "what no rule opens is not even looked up"


@pytest.mark.parametrize(
    "host",
    [
        *("127.0.0.1", "127.1", "2130706433", "0x7f000001", "017700000001", "0x7f.0.0.1", "0", "0.0.0.0", "127.0.0.1."),
        *("169.254.169.254", "0xa9fea9fe", "2852039166", "10.0.0.5", "192.168.1.1", "172.16.0.1", "224.0.0.1"),
        *("[::1]", "[::]", "[::ffff:127.0.0.1]", "[::ffff:169.254.169.254]", "[::ffff:10.0.0.5]", "[::ffff:a9fe:a9fe]"),
        *("[fe80::1]", "[fd00:ec2::254]", "[fc00::1]", "[64:ff9b::7f00:1]", "[2002:7f00:1::]", "[2001:0:a00:5::]"),
        *("[::127.0.0.1]", "[::ffff:0:127.0.0.1]", "[ff02::1]", "255.255.255.255"),
    ],
)
async def test_addresses_that_are_refused_in_every_spelling(world: OutsideWorld, box: Box, host: str) -> None:
    for answer in (await box.get(f"http://{host}/"), await box.tunnel(f"{host}:443")):
        assert answer.startswith(b"HTTP/1.1 403 Forbidden\r\n"), answer
    assert world.dialled == []
    assert world.asked == [], "an address is never looked up"


async def test_a_name_for_such_an_address_is_refused_and_not_told(world: OutsideWorld, box: Box) -> None:
    """What names mean on the network around us is none of a sandbox's business."""
    answer = await box.get("http://intern.example/")
    assert answer.startswith(b"HTTP/1.1 403 ")
    assert b"10.0.0.5" not in answer
    assert b"intern.example port 80 is refused" in answer
    assert b"NetworkPolicy team/out" in answer
    assert b"add an egress rule" in answer
    assert world.dialled == []


async def test_the_machines_own_addresses_are_refused_whatever_a_policy_says(world: OutsideWorld, box: Box) -> None:
    world.own = {"93.184.215.14", "2606:4700::5"}
    box.policies.put(network_policy(EVERYWHERE))
    for host in ("93.184.215.14", "[2606:4700::5]", "[::ffff:93.184.215.14]", "[64:ff9b::93.184.215.14]"):
        assert b"403 Forbidden" in await box.get(f"http://{host}/"), host
    assert world.dialled == []


async def test_names_that_change_between_check_and_connect(world: OutsideWorld, box: Box) -> None:
    """The classic: public when it is checked, the metadata service when it is connected to. It is looked up once."""
    world.names["rebind.example"] = [["1.1.1.1"], ["169.254.169.254"], ["127.0.0.1"]]
    assert b"200 OK" in await box.get("http://rebind.example/")
    assert world.asked == ["rebind.example"]
    assert world.dialled == [("1.1.1.1", 80)]
    assert b"403" in await box.get("http://rebind.example/")
    assert b"403" in await box.tunnel("rebind.example:443")
    assert world.dialled == [("1.1.1.1", 80)]


async def test_of_mixed_answers_only_the_allowed_ones_are_tried(world: OutsideWorld, box: Box) -> None:
    world.names["mixed.example"] = [["127.0.0.1", "10.0.0.1", "2.2.2.2", "::ffff:192.168.0.1", "3.3.3.3"]]
    world.dead = {"2.2.2.2"}
    assert b"200 OK" in await box.get("http://mixed.example/")
    assert world.dialled == [("2.2.2.2", 80), ("3.3.3.3", 80)]


async def test_a_redirect_is_a_new_request(world: OutsideWorld, box: Box) -> None:
    async def redirect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 302 Found\r\nLocation: http://169.254.169.254/latest/\r\nContent-Length: 0\r\n\r\n")

    world.serve = redirect
    answer = await box.get("http://example.com/")
    assert b"location: http://169.254.169.254/latest/" in answer
    target = answer.partition(b"location: ")[2].partition(b"\r\n")[0].decode()
    assert b"403 Forbidden" in await box.get(target)
    assert world.dialled == [("1.1.1.1", 80)]


async def test_the_url_counts_and_not_the_host_header(world: OutsideWorld, box: Box) -> None:
    await box.ask(b"GET http://example.com/ HTTP/1.1\r\nHost: intern.example\r\n\r\n")
    assert world.asked == ["example.com"]
    assert b"host: example.com\r\n" in world.requests[0]
    refused = await box.ask(b"GET http://intern.example/ HTTP/1.1\r\nHost: example.com\r\n\r\n")
    assert b"403" in refused


async def test_without_a_policy_nothing_goes_out(world: OutsideWorld, box: Box) -> None:
    assert "proxy that HTTP_PROXY" in box.pod.notes[-1]
    box.policies.remove("team", "out")
    answer = await box.get("http://example.com/")
    assert b"403 Forbidden" in answer
    assert b"no NetworkPolicy with egress rules selects this pod" in answer
    assert world.asked == []
    assert "reaches nothing outside" in box.pod.notes[-1]


async def test_a_changed_policy_cuts_what_it_no_longer_allows(world: OutsideWorld, box: Box) -> None:
    reader, writer = await box.open()
    stayed, other = await box.open()
    world.serve = _echo
    box.policies.put(network_policy(EVERYWHERE))
    for stream, out, target in ((reader, writer, b"1.1.1.1:443"), (stayed, other, b"2.2.2.2:443")):
        out.write(b"CONNECT %b HTTP/1.1\r\n\r\n" % target)
        assert b" 200 " in await stream.readuntil(b"\r\n\r\n")
    box.policies.put(network_policy([to_block("2.2.2.2/32")]))
    assert await reader.read() == b""
    other.write(b"still there")
    assert await stayed.readexactly(11) == b"still there"
    box.pod.relabel({"app": "another"})
    assert await stayed.read() == b""
    box.pod.relabel(LABELS)
    world.serve = world.hello
    assert await box.tunnel("2.2.2.2:443") == HELLO
    for out in (writer, other):
        out.close()


async def _echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(1 << 16):
        writer.write(data)
        await writer.drain()
    writer.write_eof()


async def test_a_tunnel_carries_both_ways_and_each_end_by_itself(world: OutsideWorld, box: Box) -> None:
    world.serve = _echo
    data = bytes(range(256)) * 8192
    reader, writer = await box.open()
    writer.write(b"CONNECT example.com:443 HTTP/1.1\r\n\r\nearly")
    assert b" 200 " in await reader.readuntil(b"\r\n\r\n")

    async def send() -> None:
        writer.write(data)
        await writer.drain()
        writer.write_eof()

    sending = asyncio.ensure_future(send())
    assert await reader.read(-1) == b"early" + data
    await sending
    writer.close()


async def test_bodies_go_exactly_as_long_as_they_are(world: OutsideWorld, box: Box) -> None:
    got: list[bytes] = []

    async def collect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        size = 3 if b"content-length: 3" in head else len(b"3\r\nabc\r\n0\r\n\r\n")
        got.append(await reader.readexactly(size))
        writer.write(HELLO)

    world.serve = collect
    second = b"GET http://intern.example/ HTTP/1.1\r\n\r\n"
    for head, body in (
        (b"Content-Length: 3", b"abc"),
        (b"Transfer-Encoding: chunked", b"3\r\nabc\r\n0\r\n\r\n"),
    ):
        answer = await box.ask(b"POST http://example.com/ HTTP/1.1\r\n%b\r\n\r\n%b%b" % (head, body, second))
        assert answer.count(b"HTTP/1.1") == 1, "one request for each connection"
        assert got.pop() == body


async def test_a_body_that_is_no_body_is_refused(world: OutsideWorld, box: Box) -> None:
    world.serve = _echo
    head = b"POST http://example.com/ HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"
    assert b"400 Bad Request" in await box.ask(head + b"zz\r\n")


async def test_interim_answers_are_passed_on(world: OutsideWorld, box: Box) -> None:
    async def expecting(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        assert await reader.readexactly(3) == b"abc"
        writer.write(HELLO)

    world.serve = expecting
    reader, writer = await box.open()
    writer.write(b"POST http://example.com/ HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n")
    assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
    writer.write(b"abc")
    assert (await reader.read()).endswith(b"hello")
    writer.close()


@pytest.mark.parametrize(
    "said", [b"", b"\x00\x01garbage\r\n\r\n", b"HTTP/1.1 101 Switching\r\n\r\n", b"HTTP/1.1 200 OK\r\nX"]
)
async def test_an_origin_that_makes_no_sense(world: OutsideWorld, box: Box, said: bytes) -> None:
    async def nonsense(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(said)

    world.serve = nonsense
    assert (await box.get("http://example.com/")).startswith(b"HTTP/1.1 502 ")


async def test_what_cannot_be_reached_or_found(world: OutsideWorld, box: Box) -> None:
    world.dead = {"1.1.1.1"}
    assert (await box.get("http://example.com/")).startswith(b"HTTP/1.1 502 ")
    assert (await box.get("http://unknown.example/")).startswith(b"HTTP/1.1 502 ")
    assert box.network.counts()["Unreachable"] == 1
    assert box.network.counts()["Lookup"] == 1


async def test_names_and_origins_that_never_answer(world: OutsideWorld) -> None:
    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()

    policies = Policies()
    policies.put(network_policy(PUBLIC))
    world.serve = silent
    options = NetworkOptions(lookup_timeout=0.05, answer_timeout=0.05, head_timeout=0.05)
    async with box_with(world, policies, options) as box:
        assert (await box.get("http://example.com/")).startswith(b"HTTP/1.1 504 ")
        world.hang = asyncio.Event()
        assert (await box.get("http://example.com/")).startswith(b"HTTP/1.1 504 ")
        assert (await box.ask(b"GET http://exam")).startswith(b"HTTP/1.1 408 ")


async def test_an_answer_before_the_end_of_the_body_arrives(world: OutsideWorld, box: Box) -> None:
    """An origin that refuses a large upload answers and closes; the client, still sending, can read why."""

    async def too_large(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 413 Content Too Large\r\nContent-Length: 0\r\n\r\n")

    world.serve = too_large
    reader, writer = await box.open()
    writer.write(b"POST http://example.com/ HTTP/1.1\r\nContent-Length: 50000000\r\n\r\n" + b"x" * 300_000)
    assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 413 ")
    writer.close()


async def test_an_answer_that_breaks_off_is_not_taken_for_a_whole_one(world: OutsideWorld, box: Box) -> None:
    async def breaking(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\n\r\nhalf")
        await writer.drain()
        await half.wait()
        reset(writer.get_extra_info("socket"))

    half = asyncio.Event()
    world.serve = breaking
    reader, writer = await box.open()
    writer.write(b"GET http://example.com/ HTTP/1.1\r\n\r\n")
    await reader.readuntil(b"half")
    half.set()
    with pytest.raises(ConnectionResetError):
        await reader.read()
    writer.close()


async def test_a_half_closed_request_is_still_answered(box: Box) -> None:
    answer = await box.ask(b"GET http://example.com/ HTTP/1.1\r\n\r\n", end=True)
    assert answer.endswith(b"hello")


async def test_a_flood_of_policies_is_judged_once_and_the_last_one_holds(
    world: OutsideWorld, box: Box, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each write used to compare every open connection with every rule, while everybody else waited."""
    world.serve = _echo
    asked: list[object] = []
    find = box.policies.rules_of
    monkeypatch.setattr(box.policies, "rules_of", lambda *args: asked.append(args) or find(*args))
    reader, writer = await box.open()
    writer.write(b"CONNECT 1.1.1.1:443 HTTP/1.1\r\n\r\n")
    assert b" 200 " in await reader.readuntil(b"\r\n\r\n")
    asked.clear()
    for number in range(50):
        box.policies.put(network_policy([to_block("1.1.1.1/32", ports=[{"port": 443}, {"port": 1000 + number}])]))
    box.policies.put(network_policy([to_block("2.2.2.2/32")]))
    assert await reader.read() == b""
    assert len(asked) <= 2
    writer.close()
