"""Registries that send much for nothing. Everything here is parsed in the process that serves all tenants."""

from __future__ import annotations

import asyncio
import contextlib
import tracemalloc
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from sandpool.base.errors import NodeError
from sandpool.node.images.options import LARGE, ImageOptions
from support.clocks.hasty_clock import Hasty
from support.images.files import INDEX, encode, file, make_image
from support.images.small_registry import small_registry
from support.images.store import image_store

MOST = 64 << 20  # bytes of one flood
BEGINNING = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
OPTIONS = ImageOptions(registries=("127.0.0.1:*",), attempts=1)


Play = Callable[[asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def answering(play: Play) -> AsyncIterator[str]:
    """The address of somebody who answers every request like this, until it is cut off or the test ends."""
    playing: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            await reader.readuntil(b"\r\n\r\n")
            await play(writer)
        writer.transport.abort()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(serve(reader, writer))
        playing.add(task)
        task.add_done_callback(lambda _: writer.transport.abort())

    async with await asyncio.start_server(accept, "127.0.0.1", 0) as server:
        try:
            yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        finally:
            for task in playing:
                task.cancel()
            await asyncio.gather(*playing, return_exceptions=True)


@pytest.mark.parametrize(
    ("beginning", "again"),
    [
        (b"", b"HTTP/1.1 100 Continue\r\n\r\n" * 2000),
        (b"", b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n" * 1000),
        (b"", b"\r\n" * 20_000),
        (BEGINNING + b"1;", b"a" * 65536),
        (BEGINNING, b"1\r\n \r\n" * 10_000),
    ],
    ids=["continue", "hints", "lines", "words of a chunk", "tiny chunks"],
)
async def test_what_is_no_content_is_cut_off(tmp_path: Path, beginning: bytes, again: bytes) -> None:
    sent = 0

    async def play(writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        writer.write(beginning)
        while sent < MOST:
            writer.write(again)
            sent += len(again)
            await writer.drain()

    async with answering(play) as address, image_store(tmp_path / "i", OPTIONS) as store:
        with pytest.raises(NodeError, match="the connection broke off"):
            await store.take(f"{address}/tool:1", holder="a")
        assert sent < MOST // 2


@pytest.mark.parametrize(
    "document",
    [
        b'{"schemaVersion":2,"manifests":[' + b",".join([b"[]"] * 1_300_000) + b"]}",
        b'{"schemaVersion":2,"config":{"digest":"","size":0},"x":[' + b",".join([b"{}"] * 1_300_000) + b"]}",
        encode({"schemaVersion": 2, "manifests": [{"digest": "x", "size": 1, "annotations": dict.fromkeys(map(str, range(300_000)), "")}]}),
    ],
    ids=["an index", "a manifest", "annotations"],
)  # fmt: skip
async def test_only_what_is_known_of_a_document_takes_memory(tmp_path: Path, document: bytes) -> None:
    async with small_registry() as registry, image_store(tmp_path / "i", OPTIONS) as store:
        registry.manifests["tool", "1"] = (INDEX, document)
        tracemalloc.start()
        try:
            with pytest.raises(NodeError, match="cannot be used"):
                await store.take(f"{registry.address}/tool:1", holder="a")
            assert tracemalloc.get_traced_memory()[1] < 10 * len(document)
        finally:
            tracemalloc.stop()


async def test_an_error_keeps_nothing_of_what_was_pulled(tmp_path: Path) -> None:
    """Errors of pods are kept for a while, and there may be many."""
    async with small_registry() as registry, image_store(tmp_path / "i", OPTIONS) as store:
        registry.manifests["tool", "1"] = (INDEX, b"{" + b" " * 3_000_000)
        with pytest.raises(NodeError, match="not JSON") as caught:
            await store.take(f"{registry.address}/tool:1", holder="a")
    error: BaseException | None = caught.value
    while error is not None:
        at = error.__traceback__
        while at is not None:
            assert "content" not in at.tb_frame.f_locals, at.tb_frame
            at = at.tb_next
        error = error.__cause__ or error.__context__


async def test_what_is_told_about_a_document_is_short(tmp_path: Path) -> None:
    entry = {
        "digest": f"sha256:{'a' * 64}",
        "size": 1,
        "platform": {"os": "\x1b[2J" + "x" * 3_000_000, "architecture": "y"},
    }
    async with small_registry() as registry, image_store(tmp_path / "i", OPTIONS) as store:
        registry.manifests["tool", "1"] = (INDEX, encode({"schemaVersion": 2, "manifests": [entry]}))
        with pytest.raises(NodeError, match="is not made for this machine") as caught:
            await store.take(f"{registry.address}/tool:1", holder="a")
    assert len(str(caught.value)) < 2000
    assert str(caught.value).isprintable()


async def test_large_documents_take_turns_and_small_ones_do_not_wait(tmp_path: Path) -> None:
    """Whoever holds all the places with documents that do not end keeps nobody from pulling what is usual."""
    image = make_image([file("a", b"x")])
    stuck = BEGINNING + b"%x\r\n" % (4 * LARGE) + b" " * (2 * LARGE)
    options = replace(OPTIONS, large=1, silence=600.0)

    async def hold(writer: asyncio.StreamWriter) -> None:
        writer.write(stuck)
        await asyncio.Event().wait()

    async with (
        answering(hold) as address,
        small_registry() as registry,
        image_store(tmp_path / "i", options) as store,
    ):
        registry.blobs |= image.blobs
        registry.manifests["tool", "1"] = (image.media_type, image.manifest)
        pulls = [asyncio.create_task(store.take(f"{address}/tool:{n}", holder=str(n))) for n in range(3)]
        assert (await store.take(f"{registry.address}/tool:1", holder="a")).id == image.id
        for one in pulls:
            one.cancel()
        await asyncio.gather(*pulls, return_exceptions=True)


@pytest.mark.parametrize("holders", ["aaaa", "abcd"], ids=["one tenant", "each another"])
async def test_large_documents_of_others_do_not_keep_a_tenant_from_its_own(tmp_path: Path, holders: str) -> None:
    """Neither by their number nor by their slowness."""
    image = make_image([file("a", b"x")])
    options = replace(OPTIONS, large=4, silence=600.0, patience=600.0)
    held = 0

    async def hold(writer: asyncio.StreamWriter) -> None:
        nonlocal held
        writer.write(BEGINNING + b"%x\r\n" % (4 * LARGE) + b" " * (2 * LARGE))
        await writer.drain()
        held += 1
        await asyncio.Event().wait()

    async with (
        answering(hold) as address,
        small_registry() as registry,
        image_store(tmp_path / "i", options, Hasty()) as store,
        asyncio.timeout(60),
    ):
        registry.blobs |= image.blobs
        registry.manifests["tool", "1"] = (image.media_type, image.manifest + b" " * (2 * LARGE))
        pulls = [
            asyncio.create_task(store.take(f"{address}/tool:{n}", holder=str(n), tenant=tenant))
            for n, tenant in enumerate(holders)
        ]
        while held < len(holders):
            await asyncio.sleep(0.01)
        assert (await store.take(f"{registry.address}/tool:1", holder="m", tenant="modest")).id == image.id
        for one in pulls:
            one.cancel()
        await asyncio.gather(*pulls, return_exceptions=True)


async def test_a_document_that_does_not_end_is_given_up(tmp_path: Path) -> None:
    """Every byte in time, and the whole of it never."""

    async def drip(writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
        while not writer.is_closing():
            writer.write(b" ")
            await writer.drain()
            await asyncio.sleep(0.02)

    options = replace(OPTIONS, patience=0.3)
    async with answering(drip) as address, image_store(tmp_path / "i", options) as store:
        with pytest.raises(NodeError, match="no answer in time"):
            await store.take(f"{address}/tool:1", holder="a")
