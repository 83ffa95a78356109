"""What a container said before it was gone counts, in whatever order the main process hears of the two."""

from __future__ import annotations

import os
import socket
import subprocess

import pytest

from sandpool.node.runtimes.contract import Ended
from sandpool.node.runtimes.namespaces.container import Lost, NamespaceContainer
from sandpool.node.runtimes.namespaces.forked import frames


@pytest.mark.parametrize(
    ("said", "ended"),
    [
        ([{"started": True}, {"ended": 0, "status": 3 << 8}], Ended(3)),
        ([{"started": True}], Ended(137, 9, False, "lost")),
        ([{"started": True}, {"ended": 0, "status": "nonsense"}], None),
    ],
)
async def test_last_words_count(said: list[frames.Message], ended: Ended | None) -> None:
    ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with subprocess.Popen(["true"]) as process, its:
        handle = os.pidfd_open(process.pid)
        process.wait()  # it is gone before the first word is heard
        frames.send(its, {"handle": True}, [handle])
        os.close(handle)
        for message in said:
            frames.send(its, message)
        container = NamespaceContainer("main", ours, lambda: 0, lambda: Lost("lost"))
        await container.begin({"do": "container"}, [])
        found = await container.ended
    assert found == ended if ended is not None else found.code == 137
