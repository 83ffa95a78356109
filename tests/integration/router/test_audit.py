"""The audit log on a real disk and a real pipe: whole lines, bounded, private, and never in anybody's way."""

from __future__ import annotations

import asyncio
import json
import os
import stat
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from sandpool.base.clock import SystemClock
from sandpool.kube.errors import ConfigError
from sandpool.router.audit import AuditLog, Bounds, Entry, shown_path
from support.clocks.manual_clock import ManualClock


def an_entry(number: int = 0, path: str = "/execute") -> Entry:
    return Entry(
        time="2026-01-01T00:00:00.000000Z", id=f"r-{number}", who="admin", from_="127.0.0.1", method="POST", path=path,
        status=200, received=1, sent=2, milliseconds=0.5, namespace="default", sandbox="box", port=8888,
    )  # fmt: skip


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


async def turn() -> None:
    await asyncio.sleep(0)
    await asyncio.sleep(0)


async def test_one_line_for_each_request_in_one_write_a_turn(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    with closing(AuditLog(path, SystemClock())) as audit:
        for number in range(3):
            audit.note(an_entry(number))
        assert path.read_bytes() == b""  # nobody waited for the disk
        await turn()
        found = lines(path)
    assert [one["id"] for one in found] == ["r-0", "r-1", "r-2"]
    assert found[0] == {
        "time": "2026-01-01T00:00:00.000000Z", "id": "r-0", "who": "admin", "from": "127.0.0.1", "method": "POST",
        "path": "/execute", "status": 200, "received": 1, "sent": 2, "milliseconds": 0.5, "namespace": "default",
        "sandbox": "box", "port": 8888,
    }  # fmt: skip


async def test_what_waits_is_written_at_the_end(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    audit = AuditLog(path, SystemClock())
    audit.note(an_entry())
    audit.close()
    audit.note(an_entry())  # too late: the descriptor may be another's by now
    await turn()
    audit.close()
    assert len(lines(path)) == 1


async def test_files_are_private_and_bounded(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    path.write_text("")
    path.chmod(0o644)
    bounds = Bounds(size=2_000, files=3)
    with closing(AuditLog(path, SystemClock(), bounds)) as audit:
        for number in range(200):
            audit.note(an_entry(number))
            await turn()
    files = sorted(tmp_path.iterdir())
    assert [file.name for file in files] == ["audit.log", "audit.log.1", "audit.log.2"]
    for file in files:
        assert file.stat().st_size <= bounds.size
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
    newest_first = [one["id"] for file in files for one in reversed(lines(file))]
    assert newest_first == [f"r-{number}" for number in reversed(range(200))][: len(newest_first)]
    assert len(newest_first) > 10


async def test_one_file_alone_is_bounded_too(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    with closing(AuditLog(path, SystemClock(), Bounds(size=1_000, files=1))) as audit:
        for number in range(50):
            audit.note(an_entry(number))
            await turn()
    assert [file.name for file in tmp_path.iterdir()] == ["audit.log"]
    assert lines(path)[-1]["id"] == "r-49"
    assert path.stat().st_size <= 1_000


async def test_it_goes_on_where_it_left_off(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    for number in range(2):
        with closing(AuditLog(path, SystemClock())) as audit:
            audit.note(an_entry(number))
            await turn()
    assert [one["id"] for one in lines(path)] == ["r-0", "r-1"]


async def test_a_disk_that_refuses_ends_nothing_and_the_loss_is_told(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "audit.log"
    path.parent.mkdir()
    with closing(AuditLog(path, SystemClock(), Bounds(size=100, files=2))) as audit:
        audit.note(an_entry(0))
        await turn()
        for file in (path, path.parent):
            file.unlink() if file.is_file() else file.rmdir()
        audit.note(an_entry(1))  # must start a new file, in a folder that is not there
        audit.note(an_entry(2))
        await turn()
        path.parent.mkdir()
        audit.note(an_entry(3))
        await turn()
        found = lines(path)
    assert [one.get("id") for one in found] == ["r-3", None]
    assert found[1]["lost"] == 2


def test_what_is_no_file_of_ours_is_refused(tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.write_text("")
    (tmp_path / "link").symlink_to(target)
    os.mkfifo(tmp_path / "fifo")
    for name in ("link", "fifo", ".", "absent/audit.log"):
        with pytest.raises(ConfigError, match="--audit-log"):
            AuditLog(tmp_path / name, ManualClock())
    assert not (tmp_path / "absent").exists()


@contextmanager
def piped() -> Iterator[int]:
    """Standard output is a pipe: its reading end. No fixture: pytest sets descriptor 1 between a fixture and its test."""
    reader, writer = os.pipe()
    before = os.dup(1)
    os.dup2(writer, 1)
    os.close(writer)
    try:
        yield reader
    finally:
        os.dup2(before, 1)
        os.close(before)
        os.close(reader)


async def test_a_slow_reader_of_standard_output_holds_nobody_up() -> None:
    clock = ManualClock()
    with piped() as reader:
        found = await slowly_read(clock, AuditLog(None, clock, Bounds(waiting=200_000)), reader)
    told = [one for one in found if "lost" in one]
    assert [one["id"] for one in found if "id" in one][:3] == ["r-0", "r-1", "r-2"]
    assert sum(one["lost"] for one in told) + len(found) - len(told) == 2_001
    assert told
    assert told[0]["lost"] > 100


async def slowly_read(clock: ManualClock, audit: AuditLog, piped: int) -> list[dict[str, Any]]:
    for number in range(2_000):  # far more than a pipe holds
        audit.note(an_entry(number))
        if number % 50 == 0:
            await turn()
    await turn()
    os.set_blocking(piped, False)
    read = b""
    for _ in range(100):
        try:
            read += os.read(piped, 1 << 20)
        except BlockingIOError:
            pass
        clock.advance(0.05)
    audit.note(an_entry(2_000))
    await turn()
    read += os.read(piped, 1 << 20)
    audit.close()
    return [json.loads(line) for line in read.splitlines()]


@pytest.mark.parametrize(
    ("path", "shown"),
    [
        (b"/execute?token=x", "/execute"),
        (b"/a%3Fb#c", "/a%3Fb"),
        (b"/port/v1.secret.mac/page?x", "/port/*/page"),
        (b"/port/v1.secret.mac", "/port/*"),
        (b"/port/v1.secret.mac?x=1/2", "/port/*"),
        (b"/port/", "/port/*"),
        (b"/ports/x", "/ports/x"),
        (b"/port//v1.c2VjcmV0." + b"m" * 43 + b"/page", "/port/*/*/page"),
        (b"//port/v1.c2VjcmV0." + b"m" * 43 + b"/page", "//port/*/page"),
        (b"/v1.1/v1.2.3", "/v1.1/v1.2.3"),
        (b"/\xff\xfe", "/\xff\xfe"),
        (b"/" + b"a" * 5_000, "/" + "a" * 2_047),
    ],
)
def test_paths_are_shown_without_secrets(path: bytes, shown: str) -> None:
    assert shown_path(path) == shown
