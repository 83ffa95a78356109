"""Which run of boxd answers, and a request that means another one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sandpool.wire.incarnation import sendable, started
from support.network.boxd_daemon import Daemon, boxd

HEADER = "X-Sandbox-Incarnation"
P = "/box/v1/processes"
SOCKET = "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=="


def said(box: Daemon, method: str = "GET", path: str = "/box/v1/health") -> str:
    return box.ask(method, path).headers[HEADER.lower()]


def head_of(box: Daemon, request: str) -> str:
    with box.open(request) as connection, connection.makefile("rb") as file:
        lines = []
        while (line := file.readline()) not in (b"\r\n", b""):
            lines.append(line.decode())
    return "".join(lines)


def test_every_answer_says_which_run_it_is(box: Daemon, tmp_path: Path) -> None:
    own = said(box)
    assert sendable(own)
    assert 0 < started(own) < 1e12
    (tmp_path / "file").write_bytes(b"x" * 10)
    for method, path in (
        ("GET", P),
        ("GET", f"{P}/none"),
        ("GET", "/box/v1/files/file"),
        ("GET", "/"),
        ("PUT", "/nothing"),
    ):
        assert said(box, method, path) == own, path
    assert f"{HEADER.lower()}: {own}" in head_of(box, f"GET {P}/start HTTP/1.1\r\n{SOCKET}")


def test_another_run_is_refused_before_anything_is_done(box: Daemon, tmp_path: Path) -> None:
    with boxd(tmp_path) as other:
        old = said(other)
    assert old != said(box)
    body = json.dumps({"shell": "touch done", "detach": True})
    refused = box.ask("POST", P, body, {HEADER: old})
    assert (refused.status, refused.value["code"]) == (412, "RESTARTED")
    assert refused.headers[HEADER.lower()] == said(box)
    assert box.ask("PUT", "/box/v1/files/done", b"x", {HEADER: old}).status == 412
    assert " 412 " in head_of(box, f"GET {P}/start HTTP/1.1\r\n{SOCKET}\r\n{HEADER}: {old}")
    assert not (tmp_path / "done").exists()
    assert box.ask("GET", P).value == {"processes": []}


@pytest.mark.parametrize("known", [True, False])
def test_its_own_clients_and_those_that_know_nothing_of_it_are_served(box: Daemon, known: bool) -> None:
    headers = {HEADER: said(box)} if known else {}
    assert box.ask("POST", P, json.dumps({"shell": ":", "detach": True}), headers).status == 201


def test_the_protocols_of_other_clients_do_not_know_it(box: Daemon) -> None:
    assert box.ask("GET", "/v1/health", headers={HEADER: "another"}).status == 200
