"""What is done in a sandbox that was handed out, in which order, and what its failure means; and a file that comes back."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, ClassVar

import msgspec
import pytest

from sandpool.base.clock import SystemClock
from sandpool.kube.api import EventType
from sandpool.kube.requests import HttpRequest
from sandpool.load import router_work
from sandpool.load.arrivals import burst
from sandpool.load.driver import Driver
from sandpool.load.observed import decode_object
from sandpool.load.router_work import LARGEST, MEMORY, RouterFiles, at_once, content
from sandpool.load.stage import ClaimBodies
from sandpool.load.work import Work
from sandpool.sdk.errors import CommandError, FileError, FileNotFound


class Server:
    """Takes claims and says at once that they are Ready."""

    driver: Driver

    def __init__(self, log: list[str]) -> None:
        self._log = log

    async def send(self, call: HttpRequest) -> bytes:
        if call.method == "DELETE":
            self._log.append("release")
            return b"{}"
        name = msgspec.json.decode(call.body or b"")["metadata"]["name"]
        status = {"conditions": [{"type": "Ready", "status": "True"}], "sandbox": {"name": f"box-{name}"}}
        told = decode_object(msgspec.json.encode({"metadata": {"name": name}, "status": status}))
        clock = SystemClock()
        asyncio.get_running_loop().call_soon(lambda: self.driver.heard(EventType.ADDED, told, clock.monotonic()))
        return b"{}"


class Doing:
    def __init__(self, log: list[str], exec_fails: bool = False, files_fail: bool = False) -> None:
        self._log, self._exec_fails, self._files_fail = log, exec_fails, files_fail

    async def first_output(self, namespace: str, sandbox: str) -> float:
        self._log.append(f"exec in {namespace}/{sandbox}")
        if self._exec_fails:
            raise CommandError("no output")
        return SystemClock().monotonic()

    async def round_trip(self, namespace: str, sandbox: str) -> None:
        self._log.append(f"files in {namespace}/{sandbox}")
        if self._files_fail:
            raise FileError("other bytes", "x")


def a_driver(log: list[str], work: Work) -> Driver:
    server: Any = Server(log)
    server.driver = Driver(server, server, ClaimBodies("team", "r"), SystemClock(), work, 4, "team")
    driver: Driver = server.driver
    return driver


async def test_first_a_command_then_files_then_the_release() -> None:
    log: list[str] = []
    doing = Doing(log)
    driver = a_driver(log, Work(dwell=0.0, command=doing, files=doing))
    (record,) = await driver.drive(burst(1), lambda number: f"c{number}", "pool")
    await driver.release_all()
    assert log == ["exec in team/box-c0", "files in team/box-c0", "release"]
    assert record.ready is not None
    assert record.first_output is not None
    assert record.files is not None
    assert record.first_output >= record.ready
    assert (record.error, driver.tally.failed) == ("", 0)


async def test_files_alone() -> None:
    log: list[str] = []
    driver = a_driver(log, Work(dwell=None, files=Doing(log)))
    (record,) = await driver.drive(burst(1), lambda number: f"c{number}", "pool")
    await driver.release_all()
    assert log == ["files in team/box-c0", "release"]
    assert (record.first_output, record.files is None) == (None, False)


@pytest.mark.parametrize(
    ("exec_fails", "files_fail", "error", "done"),
    [(True, False, "exec: CommandError", ["exec"]), (False, True, "files: FileError", ["exec", "files"])],
)
async def test_what_fails_is_the_last_that_is_done_and_the_claim_is_released(
    exec_fails: bool, files_fail: bool, error: str, done: list[str]
) -> None:
    log: list[str] = []
    doing = Doing(log, exec_fails, files_fail)
    driver = a_driver(log, Work(dwell=0.0, command=doing, files=doing))
    (record,) = await driver.drive(burst(1), lambda number: f"c{number}", "pool")
    await driver.release_all()
    assert [line.split()[0] for line in log] == [*done, "release"]
    assert (record.error, record.files, driver.tally.failed) == (error, None, 1)
    assert error in driver.examples


async def test_a_shape_that_comes_again_counts_from_the_first_start() -> None:
    driver = a_driver([], Work(dwell=None))
    (first,) = await driver.drive(burst(1), lambda number: "a", "pool")
    await asyncio.sleep(0.01)
    (second,) = await driver.drive(burst(1), lambda number: "b", "pool", again=True)
    assert first.scheduled == 0
    assert second.scheduled >= 0.01
    assert second.latency is not None
    assert 0 <= second.latency < second.scheduled + 60


class Disk:
    """Files of sandboxes in the place of the router; may give back those of another."""

    kept: ClassVar[dict[str, bytes]] = {}
    mixes_up: ClassVar[bool] = False
    shortens: ClassVar[bool] = False

    def __init__(self, plane: Any) -> None:
        self._box = plane.sandbox

    async def write(self, path: str, data: bytes) -> None:
        self.kept[self._box] = data

    @asynccontextmanager
    async def open(self, path: str) -> AsyncIterator[AsyncIterator[bytes]]:
        found = self.kept["other" if self.mixes_up else self._box]
        yield self._pieces(found[:-1] if self.shortens else found)

    async def _pieces(self, data: bytes) -> AsyncIterator[bytes]:
        for place in range(0, len(data), 1000):
            yield data[place : place + 1000]


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> type[Disk]:
    made = type("Made", (Disk,), {"kept": {"other": content("other", 5000)}})
    monkeypatch.setattr(router_work, "AsyncFiles", made)
    return made


async def test_a_file_goes_in_and_comes_back(disk: type[Disk]) -> None:
    nobody: Any = None
    await RouterFiles(nobody, 5000).round_trip("team", "mine")
    assert len(disk.kept["mine"]) == 5000
    assert disk.kept["mine"] != disk.kept["other"]


@pytest.mark.parametrize("fault", ["mixes_up", "shortens"])
async def test_other_bytes_than_were_sent_are_an_error(
    disk: type[Disk], monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    monkeypatch.setattr(disk, fault, True)
    nobody: Any = None
    with pytest.raises(FileError, match=r"team/mine: 'sandpool-load\.bin' came back with other bytes") as caught:
        await RouterFiles(nobody, 5000).round_trip("team", "mine")
    assert not isinstance(caught.value, FileNotFound)


@pytest.mark.parametrize("size", [1, 7, 4096, 1 << 20])
def test_contents_have_their_size(size: int) -> None:
    assert len(content("box", size)) == size


def test_memory_for_files_under_way_is_bounded() -> None:
    assert at_once(1) == 512
    assert at_once(LARGEST) * LARGEST <= MEMORY
    assert at_once(MEMORY * 2) == 1
