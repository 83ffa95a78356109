"""A container as the main process sees it: what becomes of the channel to its boxd, and how long its init is waited for."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from sandpool.base.errors import NodeError
from sandpool.node.runtimes.namespaces import container as container_module
from sandpool.node.runtimes.namespaces.container import Lost, NamespaceContainer
from sandpool.node.runtimes.namespaces.forked import frames


@contextmanager
def a_container() -> Iterator[tuple[NamespaceContainer, socket.socket]]:
    """One that was told to get boxd ready, and boxd's end of the channel."""
    ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with its:
        container = NamespaceContainer("main", ours, lambda: 0, lambda: Lost(""))
        container.send_request({"do": "container", "served": True}, [])
        received = frames.receive(its)
        assert received is not None
        with socket.socket(fileno=received[1].pop()) as boxd:
            yield container, boxd
        container.conclude()


async def test_boxd_that_lives_keeps_its_channel_when_one_connection_cannot_be_handed_over() -> None:
    """As when too many files of this user are on their way between processes, of which any sandbox of the same user may send some."""
    with a_container() as (container, boxd):
        closed = socket.socket(socket.AF_UNIX)
        closed.close()
        with pytest.raises(NodeError, match="takes no connections") as refusal:
            container.handed_to_boxd(closed)
        assert refusal.value.reason == "Busy"
        (await container.connect()).close()
        assert boxd.recv(9) == b"+", "what it serves goes on"


async def test_boxd_waits_until_it_is_connected_to() -> None:
    with a_container() as (container, _):
        assert container.boxd_waits
        (await container.connect()).close()
        assert not container.boxd_waits


async def test_boxd_that_has_ended_does_not_wait() -> None:
    with a_container() as (container, boxd):
        boxd.close()
        assert not container.boxd_waits
        asking = asyncio.create_task(container.connect())
        await asyncio.sleep(0)
        assert not asking.done(), "the container's init is asked for another one"
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)


async def test_an_init_that_does_not_answer_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """As one that is stopped: who asks what it uses, or wants it stopped, hears that, and nothing is kept of the question."""
    monkeypatch.setattr(container_module, "ANSWER", 0.05, raising=False)
    with a_container() as (container, _):
        async with asyncio.timeout(60):
            with pytest.raises(NodeError, match="container 'main' gave no answer") as late:
                await container.usage()
            with pytest.raises(NodeError, match="gave no answer"):
                await container.signal_all(19)
        await asyncio.sleep(0)
        assert late.value.reason == "Timeout"
        assert not container.answers
