"""Files through a real boxd: whole and in parts, changed, moved, watched, as trees; and never outside of the root."""

from __future__ import annotations

import io
import os
import tarfile
import threading
from pathlib import Path
from typing import Any

import pytest

from sandpool.wire.frames import Frames
from support.network.boxd_daemon import Daemon, boxd

F = "/box/v1/files"


def test_write_and_read(box: Daemon) -> None:
    assert box.ask("PUT", f"{F}/a/b%20c.bin", b"\0\xffdata").status == 204
    answer = box.ask("GET", f"{F}/a/b%20c.bin")
    assert (answer.status, answer.body) == (200, b"\0\xffdata")
    assert (box.root / "a/b c.bin").read_bytes() == b"\0\xffdata"


@pytest.mark.parametrize(
    ("wanted", "status", "body"),
    [
        ("bytes=2-4", 206, b"234"),
        ("bytes=7-", 206, b"789"),
        ("bytes=-2", 206, b"89"),
        ("bytes=0-99", 206, b"0123456789"),
        ("bytes=4-2", 200, b"0123456789"),
        ("bytes=1-2,4-5", 200, b"0123456789"),
        ("lines=1-2", 200, b"0123456789"),
    ],
)
def test_parts(box: Daemon, wanted: str, status: int, body: bytes) -> None:
    (box.root / "f").write_bytes(b"0123456789")
    answer = box.ask("GET", f"{F}/f", headers={"Range": wanted})
    assert (answer.status, answer.body) == (status, body)


def test_a_part_outside_is_refused(box: Daemon) -> None:
    (box.root / "f").write_bytes(b"0123456789")
    assert box.ask("GET", f"{F}/f", headers={"Range": "bytes=10-"}).status == 416


def test_head_says_how_much(box: Daemon) -> None:
    (box.root / "f").write_bytes(b"0123456789")
    answer = box.ask("HEAD", f"{F}/f")
    assert (answer.status, answer.headers["content-length"], answer.body) == (200, "10", b"")
    assert box.ask("HEAD", f"{F}/g").status == 404


def test_a_write_is_whole_or_not_at_all(box: Daemon) -> None:
    (box.root / "f").write_bytes(b"old")
    connection = box.open(f"PUT {F}/f HTTP/1.1\r\nContent-Length: 1000")
    connection.sendall(b"new" * 10)
    assert box.ask("GET", f"{F}/f").body == b"old"
    connection.close()
    while any(name.startswith(".boxd-") for name in os.listdir(box.root)):
        box.ask("GET", "/box/v1/health")
    assert (box.root / "f").read_bytes() == b"old"
    assert os.listdir(box.root) == ["f"]


def test_a_client_that_is_refused_while_it_sends_hears_why(box: Daemon) -> None:
    (box.root / "folder").mkdir()
    answer = box.ask("PUT", f"{F}/folder", b"x" * 8_000_000)
    assert (answer.status, answer.value["code"]) == (400, "INVALID_ARGUMENT")


def test_chunks_of_unknown_length(box: Daemon) -> None:
    assert box.ask("PUT", f"{F}/f", (b"x" * 70_000 for _ in range(20))).status == 204
    assert (box.root / "f").stat().st_size == 1_400_000


def test_modes(box: Daemon) -> None:
    box.ask("PUT", f"{F}/f?mode=0755", b"1")
    assert box.ask("GET", f"{F}/f?stat").value["mode"] == "0755"
    box.ask("PUT", f"{F}/f", b"2")
    assert box.ask("GET", f"{F}/f?stat").value["mode"] == "0755", "writing anew does not change who may run it"
    assert box.ask("PUT", f"{F}/f?mode=9", b"3").status == 400


def test_list_and_stat(box: Daemon) -> None:
    (box.root / "d").mkdir()
    (box.root / "f").write_bytes(b"12")
    os.symlink("nowhere", box.root / "l")
    entries = box.ask("GET", f"{F}/?list").value["entries"]
    assert [(e["name"], e["type"]) for e in entries] == [("d", "directory"), ("f", "file"), ("l", "symlink")]
    assert box.ask("GET", f"{F}/l?stat").status == 404
    assert box.ask("GET", f"{F}/l?stat&nofollow").value["target"] == "nowhere"
    assert box.ask("GET", f"{F}/f?list").status == 400


def test_folders_moves_and_removals(box: Daemon) -> None:
    assert box.ask("POST", f"{F}/a/b?mkdir").status == 404
    assert box.ask("POST", f"{F}/a/b?mkdir&parents").status == 204
    assert box.ask("POST", f"{F}/a/b?mkdir&parents").status == 204
    assert box.ask("POST", f"{F}/a/b?mkdir").status == 409
    box.ask("PUT", f"{F}/a/b/f", b"1")
    assert box.ask("POST", f"{F}/a/b/f?move=/c/g").status == 204
    assert (box.root / "c/g").read_bytes() == b"1"
    assert box.ask("POST", f"{F}/missing?move=/x").status == 404
    assert box.ask("DELETE", f"{F}/c").status == 409
    assert box.ask("DELETE", f"{F}/c?recursive").status == 204
    assert box.ask("DELETE", f"{F}/c").status == 404
    assert box.ask("DELETE", f"{F}/").status == 409
    assert box.ask("DELETE", f"{F}/?recursive").status == 204
    assert os.listdir(box.root) == []


def test_a_symlink_is_removed_and_not_what_it_leads_to(box: Daemon, tmp_path: Path) -> None:
    (box.root / "d").mkdir()
    (box.root / "d/f").touch()
    os.symlink("d", box.root / "l")
    assert box.ask("DELETE", f"{F}/l?recursive").status == 204
    assert (box.root / "d/f").exists()


@pytest.mark.parametrize("path", ["out/x", "../x", "%2e%2e/x", "a/..%2f..%2fx", "%2f..%2fx"])
@pytest.mark.parametrize(
    "request_line", ["GET {}", "PUT {}", "DELETE {}", "POST {}?mkdir", "GET {}?list", "PUT {}?tar"]
)
def test_nothing_outside_is_reached(
    box: Daemon, tmp_path_factory: pytest.TempPathFactory, path: str, request_line: str
) -> None:
    outside = tmp_path_factory.mktemp("outside")
    (outside / "x").write_bytes(b"secret")
    os.symlink(outside, box.root / "out")
    (box.root / "a").mkdir()
    method, _, target = request_line.format(f"{F}/{path}").partition(" ")
    body = archive((tarfile.TarInfo("f"), b"1")) if target.endswith("tar") else b""
    answer = box.ask(method, target, body if method != "GET" else None)
    assert answer.status == 403
    assert os.listdir(outside) == ["x"]
    assert (outside / "x").read_bytes() == b"secret"


def test_trees_go_there_and_back(box: Daemon) -> None:
    (box.root / "src/deep/er").mkdir(parents=True)
    (box.root / "src/deep/er/f").write_bytes(b"x" * 1_000_000)
    (box.root / "src/run").write_text("#!/bin/sh\n")
    (box.root / "src/run").chmod(0o755)
    os.symlink("deep/er/f", box.root / "src/l")
    archive = box.ask("GET", f"{F}/src?tar")
    assert archive.status == 200
    assert box.ask("PUT", f"{F}/copy?tar", archive.body).status == 200
    assert (box.root / "copy/deep/er/f").read_bytes() == b"x" * 1_000_000
    assert os.access(box.root / "copy/run", os.X_OK)
    assert os.readlink(box.root / "copy/l") == "deep/er/f"


def archive(*members: tuple[tarfile.TarInfo, bytes]) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for member, data in members:
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    return out.getvalue()


def symlink(name: str, target: str) -> tuple[tarfile.TarInfo, bytes]:
    member = tarfile.TarInfo(name)
    member.type, member.linkname = tarfile.SYMTYPE, target
    return member, b""


def test_an_archive_does_not_lead_out(box: Daemon, tmp_path_factory: pytest.TempPathFactory) -> None:
    outside = tmp_path_factory.mktemp("outside")
    (outside / "kept").write_bytes(b"kept")
    hard = tarfile.TarInfo("hard")
    hard.type, hard.linkname = tarfile.LNKTYPE, str(outside / "kept")
    device = tarfile.TarInfo("device")
    device.type = tarfile.CHRTYPE
    for hostile in (
        archive((tarfile.TarInfo("../evil"), b"x")),
        archive((tarfile.TarInfo("a/../../evil"), b"x")),
        archive(symlink("way", str(outside)), (tarfile.TarInfo("way/evil"), b"x")),
        archive(symlink("way", "../.."), (tarfile.TarInfo("way/evil"), b"x")),
        archive((hard, b"")),
        archive((device, b"")),
        b"this is no archive at all" * 100,
    ):
        assert box.ask("PUT", f"{F}/in?tar", hostile).status in (400, 403)
    assert os.listdir(outside) == ["kept"]
    assert not list(box.root.rglob("evil"))
    assert (
        tarfile.TarInfo("/abs").name,
        box.ask("PUT", f"{F}/in?tar", archive((tarfile.TarInfo("/abs"), b"x"))).status,
    ) == ("/abs", 200)
    assert (box.root / "in/abs").read_bytes() == b"x", "absolute names are below the target too"


def test_changes_are_told(box: Daemon) -> None:
    (box.root / "d").mkdir()
    connection = box.connect()
    connection.request("GET", f"{F}/?watch&recursive", headers={"Authorization": "Bearer a-token-of-the-tests"})
    response = connection.getresponse()
    frames, seen = Frames(), list[Any]()

    def until(change: str, path: str) -> None:
        while not any((value["change"], value["path"]) == (change, path) for value in seen):
            seen.extend(frame.value for frame in frames.feed(response.read1(65_536)))

    until("watching", "")
    box.ask("PUT", f"{F}/d/f", b"1")
    until("moved-to", "d/f")
    box.ask("POST", f"{F}/new/deeper?mkdir&parents")
    until("created", "new")
    (box.root / "d/f").unlink()
    until("removed", "d/f")
    connection.close()


def test_a_file_that_is_no_file_is_refused(box: Daemon) -> None:
    os.mkfifo(box.root / "pipe")
    assert box.ask("GET", f"{F}/pipe").status == 400


def test_many_write_the_same_file_and_one_wins_whole(box: Daemon) -> None:
    bodies = [bytes([n]) * 300_000 for n in range(8)]
    threads = [threading.Thread(target=box.ask, args=("PUT", f"{F}/f", body)) for body in bodies]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (box.root / "f").read_bytes() in bodies
    assert os.listdir(box.root) == ["f"]


def test_a_home_that_is_the_root_is_named_without_a_double_slash() -> None:
    with boxd(Path("/")) as daemon:
        answer = daemon.ask("GET", "/box/v1/files/no-such-file-of-a-test?relative")
    assert answer.value["message"] == "'/no-such-file-of-a-test' does not exist"
