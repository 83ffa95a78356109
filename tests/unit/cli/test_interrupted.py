"""Commands that are stopped at the wrong moment: no claim stays that nobody knows of, and no connection that leads nowhere."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from aiohttp import web

from sandpool import Connection
from sandpool.cli.cluster import Cluster
from sandpool.cli.console import Update
from sandpool.cli.exits import Exit
from sandpool.cli.sandbox.claim import Claim
from sandpool.cli.sandbox.exec import Running
from sandpool.cli.sandbox.port_forward import both_ways
from sandpool.cli.sandbox.run import Run
from sandpool.kube.config import Cluster as ApiServer
from sandpool.kube.config import User
from sandpool.kube.errors import Unreachable
from sandpool.sdk._sync.transport import Transport
from sandpool.sdk.config import Resolved
from support.network.scripted_peer import Peer, answer, scripted_peer
from support.product.silent_console import Silent


class StoppedAfterwards(Silent):
    """The signal comes when the claim is there and what shows its progress is being put away."""

    @contextmanager
    def progress(self, text: str) -> Iterator[Update]:
        yield lambda text: None
        raise Exit(143)


class NobodyListens(Silent):
    def write(self, text: str) -> None:
        raise BrokenPipeError


async def claimed(request: web.Request) -> web.StreamResponse:
    claim: dict[str, Any] = json.loads(await request.read())
    claim["metadata"] |= {"namespace": "default", "uid": "u-1", "resourceVersion": "5"}
    claim["status"] = {"sandbox": {"name": "python-x"}, "conditions": [{"type": "Ready", "status": "True"}]}
    return await answer(claim)(request)


def stopped(peer: Peer, command: Claim | Run, console: Silent) -> None:
    resolved = Resolved(ApiServer(server=peer.url), User(), "default", "", True, "", "", "the test")
    with Connection(resolved=resolved) as connection, pytest.raises((Exit, BrokenPipeError)):
        command.run(Cluster(connection), console)


@pytest.mark.parametrize(
    ("command", "console"),
    [
        (Run("python", Running(("true",))), StoppedAfterwards()),
        (Claim("python"), StoppedAfterwards()),
        (Claim("python"), NobodyListens()),
    ],
)
async def test_a_claim_whose_name_nobody_heard_is_given_back(command: Claim | Run, console: Silent) -> None:
    async with scripted_peer() as peer:
        peer.acts += [claimed, answer({})]
        await asyncio.to_thread(stopped, peer, command, console)
        assert [one.method for one in peer.seen] == ["POST", "DELETE"]
        assert peer.seen[1].json["preconditions"] == {"uid": "u-1"}


class Lost(Transport):
    """A connection to a sandbox that breaks, while whoever uses the port here waits for an answer."""

    def read(self, limit: int, deadline: float | None = None) -> bytes:
        raise Unreachable("the sandbox is gone")


def test_a_forwarded_connection_ends_with_the_sandbox() -> None:
    (ours, theirs), (here, there) = socket.socketpair(), socket.socketpair()
    with ours, theirs, here, there:
        ours.settimeout(5)
        errors: list[Exception] = []

        def carry() -> None:
            try:
                both_ways(theirs, Lost(here, "the test"), b"")
            except Unreachable as error:
                errors.append(error)

        thread = threading.Thread(target=carry, daemon=True)
        thread.start()
        assert ours.recv(1) == b""
        thread.join(5)
        assert not thread.is_alive()
        assert errors
