"""A handle whose sandbox was started again between two calls: one call says so, without having done anything, and the next one works.

Two daemons; the way of the handle leads to the one, then to the other. Both halves of the SDK.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any

import pytest

from sandpool.sdk._async.data_plane import DataPlane
from sandpool.sdk._async.http import Headers, Response
from sandpool.sdk.errors import ProcessLost, SandboxRestarted
from sandpool.sdk.origin import Origin
from sandpool.wire.headers import INCARNATION
from support.network.boxd_daemon import Daemon, boxd
from support.network.sdk_box import a_box

LARGE = b"x" * (1 << 20)


@pytest.fixture(scope="module")
def next_daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    with boxd(tmp_path_factory.mktemp("next")) as found:
        yield found


@pytest.fixture(params=["async", "sync"])
async def box(request: pytest.FixtureRequest, daemon: Daemon) -> AsyncIterator[Any]:
    async with a_box(request.param, daemon.port) as found:
        yield found


async def lead(box: Any, daemon: Daemon) -> None:
    """From now on the handle's requests arrive there."""
    old = box.way.http
    box.way.http = type(old)(Origin("http", "127.0.0.1", daemon.port))
    closing = old.close()
    if closing is not None:
        await closing


async def iterated(box: Any) -> None:
    async for _ in box.stream("touch made"):
        pass


CALLS: dict[str, Callable[[Any], Awaitable[Any]]] = {
    "run": lambda box: box.run("touch made"),
    "list": lambda box: box.run(["touch", "made"]),
    "fed": lambda box: box.run("cat > made", stdin=LARGE),
    "stream": iterated,
    "start": lambda box: box.start("touch made"),
    "terminal": lambda box: box.terminal("touch made"),
    "processes": lambda box: box.processes(),
    "write": lambda box: box.files.write("made", "x"),
    "write much": lambda box: box.files.write("made", iter([LARGE])),
    "read": lambda box: box.files.read("made"),
}


@pytest.mark.parametrize("name", CALLS)
async def test_one_call_says_so_and_does_nothing(box: Any, next_daemon: Daemon, name: str) -> None:
    await box.run(":")
    await lead(box, next_daemon)
    with pytest.raises(SandboxRestarted, match=r"was restarted since the last call, and this call did nothing"):
        await CALLS[name](box)
    assert not (next_daemon.root / "made").exists()
    assert (await box.run("echo here")).stdout == "here\n"


async def test_a_first_call_with_much_input_learns_it_too(box: Any, next_daemon: Daemon) -> None:
    await box.run("cat >/dev/null", stdin=LARGE)
    await lead(box, next_daemon)
    with pytest.raises(SandboxRestarted):
        await box.run(":")


async def drained(process: Any) -> None:
    async for _ in process:
        pass


ABOUT: dict[str, Callable[[Any], Awaitable[Any]]] = {
    "wait": lambda process: process.wait(),
    "poll": lambda process: process.poll(),
    "read": lambda process: process.read(),
    "iterate": drained,
    "kill": lambda process: process.kill(),
    "input": lambda process: process.stdin.write("x"),
    "remove": lambda process: process.remove(),
}


@pytest.mark.parametrize("name", ABOUT)
async def test_a_process_is_lost_and_the_handle_goes_on(
    box: Any, daemon: Daemon, next_daemon: Daemon, name: str
) -> None:
    process = await box.start(["cat"])
    try:
        await lead(box, next_daemon)
        with pytest.raises(ProcessLost, match=f"process {process.id}.* was restarted"):
            await ABOUT[name](process)
        assert (await box.run("echo here")).stdout == "here\n"
    finally:
        daemon.ask("DELETE", f"/box/v1/processes/{process.id}")


@pytest.mark.parametrize("what", ["read", "write"])
async def test_a_terminal_is_lost_and_the_handle_goes_on(
    box: Any, daemon: Daemon, next_daemon: Daemon, what: str
) -> None:
    terminal = await box.terminal(["cat"])
    try:
        await lead(box, next_daemon)
        with pytest.raises(ProcessLost):
            await (terminal.read() if what == "read" else terminal.write("x"))
        assert (await box.run("echo here")).stdout == "here\n"
    finally:
        daemon.ask("DELETE", f"/box/v1/processes/{terminal.id}")


class _Peer:
    """What answers in a daemon's place; and the way to it."""

    def __init__(self, *headers: dict[str, str]) -> None:
        self.answers = [Response(200, each, b"{}") for each in headers]
        self.sent: list[dict[str, str]] = []

    async def router(self) -> Any:
        return self

    async def bearer(self) -> Headers:
        return ()

    async def renew(self, used: Headers) -> bool:
        return False

    async def request(
        self, method: str, path: str, headers: Headers, body: bytes, timeout: float | None, limit: int
    ) -> Response:
        self.sent.append(dict(headers))
        return self.answers.pop(0)


@pytest.mark.parametrize("said", [{}, {INCARNATION.lower(): "a b\x7f"}, {INCARNATION.lower(): "x" * 200}])
async def test_a_daemon_that_says_nothing_usable_is_told_nothing(said: dict[str, str]) -> None:
    peer = _Peer(said, {INCARNATION.lower(): "one"}, {INCARNATION.lower(): "two"}, {})
    plane = DataPlane(peer, "default", "box")
    for _ in range(4):
        await plane.request("GET", "/")
    assert [sent.get(INCARNATION) for sent in peer.sent] == [None, None, "one", "one"]
