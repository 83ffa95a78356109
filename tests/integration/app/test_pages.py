"""The pages for operators, over real sockets."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import pytest

from sandpool.telemetry.pages import Address, Bounds, CannotListen, Page, Pages
from sandpool.telemetry.profiles import profile_pages

HERE = Address("127.0.0.1", 0)


async def talk(address: Address, request: bytes) -> tuple[int, bytes]:
    """Status and body of whatever is answered; 0 if the connection just ends."""
    reader, writer = await asyncio.open_connection(address.host, address.port)
    try:
        writer.write(request)
        answer = await reader.read()
    except ConnectionResetError:
        answer = b""
    finally:
        writer.close()
    head, _, body = answer.partition(b"\r\n\r\n")
    return (int(head.split(b" ")[1]) if head else 0), body


async def get(address: Address, path: str) -> tuple[int, bytes]:
    return await talk(address, f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())


async def hello(query: Mapping[str, str]) -> Page:
    return Page(f"hello {query.get('who', '')}\n".encode())


async def test_pages_and_what_is_none() -> None:
    async with Pages({"/hello": hello}).listening(HERE, "--x") as address:
        assert await get(address, "/hello?who=you") == (200, b"hello you\n")
        assert await get(address, "/") == (404, b"there is no / here, but:\n/hello\n")
        assert await talk(address, b"HEAD /hello HTTP/1.1\r\n\r\n") == (200, b"")
        assert (await talk(address, b"POST /hello HTTP/1.1\r\n\r\n"))[0] == 405
        assert (await talk(address, b"nonsense\r\n\r\n"))[0] == 400


async def test_whoever_is_slow_or_long_is_let_go() -> None:
    pages = Pages({"/hello": hello}, Bounds(arrival=0.2))
    async with pages.listening(HERE, "--x") as address:
        assert await talk(address, b"GET /hello HTTP/1.1\r\n") == (0, b"")
        assert await talk(address, b"GET /hello HTTP/1.1\r\nX: " + b"x" * 20000 + b"\r\n\r\n") == (0, b"")
        assert (await get(address, "/hello"))[0] == 200


async def test_connections_are_bounded() -> None:
    release, inside = asyncio.Event(), asyncio.Semaphore(0)

    async def slow(query: Mapping[str, str]) -> Page:
        inside.release()
        await release.wait()
        return Page(b"done\n")

    async with Pages({"/slow": slow, "/hello": hello}, Bounds(connections=2)).listening(HERE, "--x") as address:
        async with asyncio.TaskGroup() as group:
            waiting = [group.create_task(get(address, "/slow")) for _ in range(2)]
            for _ in waiting:
                await inside.acquire()
            assert await get(address, "/hello") == (0, b"")
            release.set()
        assert [task.result() for task in waiting] == [(200, b"done\n")] * 2
        assert (await get(address, "/hello"))[0] == 200


async def test_the_end_does_not_wait_for_anybody() -> None:
    async def never(query: Mapping[str, str]) -> Page:
        await asyncio.Event().wait()
        raise AssertionError

    async with Pages({"/never": never}).listening(HERE, "--x") as address:
        asked = asyncio.create_task(get(address, "/never"))
        reader, writer = await asyncio.open_connection(address.host, address.port)
        writer.write(b"GET /never HTTP/1.1\r\n\r\n")
        await asyncio.sleep(0)
    assert await asked == (0, b"")
    assert await reader.read() == b""
    writer.close()


async def test_an_address_that_is_taken_is_named_with_the_flag() -> None:
    async with Pages({}).listening(HERE, "--x") as address:
        with pytest.raises(CannotListen, match=f"127.0.0.1:{address.port}.*--x"):
            async with Pages({}).listening(address, "--x"):
                pass


async def profile(address: Address) -> str:
    code, text = await get(address, "/debug/profile?seconds=0.5")
    assert code == 200
    return text.decode()


async def test_profiles() -> None:
    def spin() -> None:
        end = asyncio.get_running_loop().time() + 0.02
        while asyncio.get_running_loop().time() < end:
            pass

    async def work() -> None:
        while True:
            spin()
            await asyncio.sleep(0)

    async with Pages(profile_pages()).listening(HERE, "--x") as address:
        busy = asyncio.create_task(work(), name="busy")
        async with asyncio.timeout(60):  # of a busy machine, on which half a second may be too short to look even twice
            while "spin" not in (stacks := await profile(address)):
                pass
        assert all(int(line.rpartition(" ")[2]) > 0 for line in stacks.splitlines())
        code, text = await get(address, "/debug/tasks")
        assert b"test_pages.py" in text
        code, text = await get(address, "/debug/memory?seconds=0.1")
        assert code == 200
        assert b"resident:" in text
        assert b"still alive, by line" in text
        assert (await get(address, "/debug/profile?seconds=x"))[0] == 400
        assert (await get(address, "/debug/profile?seconds=1000"))[0] == 400
        both = await asyncio.gather(*(get(address, "/debug/profile?seconds=0.2") for _ in range(2)))
        assert sorted(code for code, _ in both) == [200, 409]
        busy.cancel()
        await asyncio.gather(busy, return_exceptions=True)
