"""One request and its answer, on a transport that only remembers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

import pytest

from sandpool.controlplane.apiserver.exchange import Exchange, Flow, Unread, lines_of
from sandpool.controlplane.apiserver.response import JsonResponse, text
from sandpool.kube.errors import RequestTooLarge


class Transport:
    def __init__(self) -> None:
        self.written: list[bytes] = []
        self.closed = False
        self.reading = True
        self.full: Callable[[], None] | None = None  # called by whatever is written

    def write(self, data: bytes) -> None:
        self.written.append(data)
        if self.full is not None:
            self.full()

    def close(self) -> None:
        self.closed = True

    def is_closing(self) -> bool:
        return self.closed

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True


class ServerState:
    date = b"date: today\r\n"


class ExchangeConnection:
    state = ServerState()

    def __init__(self) -> None:
        self.remembered = Transport()
        self.transport = cast(asyncio.Transport, self.remembered)
        self.flow = Flow(self.transport)
        self.answers = 0

    def answered(self) -> None:
        self.answers += 1

    def allow_slow_reader(self) -> None: ...

    def own(self, tenant: str) -> None: ...

    def hold(self, size: int) -> bool:
        return True

    def cut(self) -> None: ...

    async def turn(self, size: int) -> None: ...


def exchange(connection: ExchangeConnection, **options: Any) -> Exchange:
    return Exchange(connection, **{"method": "POST", "path": "/", "query": b"", "headers": [], "keep": True, **options})


def arrived(*parts: bytes, whole: bool = True) -> Exchange:
    made = exchange(ExchangeConnection())
    for part in parts:
        made.feed(part)
    if whole:
        made.finish()
    return made


async def test_a_body_arrives_whole_or_in_parts() -> None:
    assert await arrived().read(3) == b""
    assert await arrived(b"abc").read(3) == b"abc"
    assert await arrived(b"a", b"b", b"c").read(3) == b"abc"


async def test_a_body_that_is_still_arriving_is_waited_for() -> None:
    late = arrived(b"a", whole=False)
    reading = asyncio.create_task(late.read(3))
    for part in (b"b", b"c"):
        await asyncio.sleep(0)
        late.feed(part)
    await asyncio.sleep(0)
    assert not reading.done()
    late.finish()
    assert await reading == b"abc"


async def test_a_body_is_refused_as_soon_as_it_is_too_long() -> None:
    with pytest.raises(RequestTooLarge, match="Request entity too large: limit is 2"):
        await arrived(b"abc").read(2)
    with pytest.raises(RequestTooLarge):
        await arrived(b"ab", b"c", whole=False).read(2)  # the rest is never waited for
    with pytest.raises(RequestTooLarge):
        await exchange(ExchangeConnection(), headers=[(b"content-length", b"3")]).read(
            2
        )  # nor anything, if its length is declared


async def test_much_of_a_body_that_nobody_reads_stays_with_the_client() -> None:
    connection = ExchangeConnection()
    made = exchange(connection)
    made.feed(b"a" * 65_537)
    assert not connection.remembered.reading
    reading = asyncio.create_task(made.read(100_000))
    await asyncio.sleep(0)
    assert connection.remembered.reading
    made.finish()
    assert len(await reading) == 65_537


async def test_a_client_that_leaves() -> None:
    late = arrived(b"a", whole=False)
    reading = asyncio.create_task(late.read(9))
    await asyncio.sleep(0)
    late.lose()
    with pytest.raises(Unread):
        await reading
    await late.left()
    connection = ExchangeConnection()
    gone = exchange(connection)
    gone.lose()
    await JsonResponse(b"{}").deliver(gone)
    await gone.start(200, b"")
    await gone.piece(b"a")
    await gone.end()
    assert connection.remembered.written == []


async def test_a_body_that_waits_for_its_welcome() -> None:
    connection = ExchangeConnection()
    made = exchange(connection, headers=[(b"expect", b"100-Continue")])
    reading = asyncio.create_task(made.read(9))
    await asyncio.sleep(0)
    made.finish()
    await reading
    assert connection.remembered.written == [b"HTTP/1.1 100 Continue\r\n\r\n"]


async def test_a_whole_answer_is_one_write() -> None:
    connection = ExchangeConnection()
    made = exchange(connection)
    await JsonResponse(b'{"a":1}', 201, [(b"warning", b"x")]).deliver(made)
    assert connection.remembered.written == [
        b"HTTP/1.1 201 Created\r\ndate: today\r\ncontent-type: application/json\r\ncache-control: no-cache, private\r\n"
        b'warning: x\r\ncontent-length: 7\r\n\r\n{"a":1}'
    ]
    assert (made.complete, connection.answers, connection.remembered.closed) == (True, 1, False)


async def test_the_answer_to_head_has_no_body_and_the_last_one_says_so() -> None:
    connection = ExchangeConnection()
    await text("ok").deliver(exchange(connection, method="HEAD", keep=False))
    (said,) = connection.remembered.written
    assert said.endswith(b"content-length: 2\r\nconnection: close\r\n\r\n")
    assert connection.remembered.closed


async def test_an_answer_waits_until_the_last_one_is_read() -> None:
    connection = ExchangeConnection()
    connection.flow.pause_writing()
    answering = asyncio.create_task(JsonResponse(b"{}").deliver(exchange(connection)))
    await asyncio.sleep(0)
    assert connection.remembered.written == []
    connection.flow.resume_writing()
    await answering
    assert len(connection.remembered.written) == 1


@pytest.mark.parametrize("whole", [True, False])
async def test_the_last_answer_is_read_before_the_connection_ends(whole: bool) -> None:
    connection = ExchangeConnection()
    made = exchange(connection, keep=False)
    if not whole:
        await made.start(200, b"")
    connection.remembered.full = connection.flow.pause_writing
    answering = asyncio.create_task(made.whole(200, b"", b"much") if whole else made.end(b"much"))
    await asyncio.sleep(0)
    assert b"much" in b"".join(connection.remembered.written)
    assert not connection.remembered.closed
    connection.flow.resume_writing()
    await answering
    assert connection.remembered.closed


async def test_an_answer_in_pieces() -> None:
    connection = ExchangeConnection()
    made = exchange(connection)
    await made.start(200, b"a: b\r\n")
    await made.piece(b"x" * 17)
    await made.piece(b"")  # would be the end
    await made.end(b"yz")
    assert b"".join(connection.remembered.written) == (
        b"HTTP/1.1 200 OK\r\ndate: today\r\na: b\r\ntransfer-encoding: chunked\r\n\r\n"
        b"11\r\n" + b"x" * 17 + b"\r\n2\r\nyz\r\n0\r\n\r\n"
    )
    assert connection.answers == 1


def test_a_header_is_one_line() -> None:
    assert lines_of([(b"a", b"b"), (b"c", b"d")]) == b"a: b\r\nc: d\r\n"
    with pytest.raises(ValueError, match="control characters"):
        lines_of([(b"a", b"b\r\nc: d")])
