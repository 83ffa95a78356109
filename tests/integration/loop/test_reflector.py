"""The reflector and the cache over real connections: pages, streams, cut connections, restarts, forgotten revisions."""

from __future__ import annotations

import asyncio
import os
import random
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path

import pytest

from conformance.bodies import metadata, sandbox
from sandpool.base.clock import SystemClock
from sandpool.controlplane.api import LocalApi
from sandpool.controlplane.apiserver.access.directory import open_access, write_kubeconfig
from sandpool.controlplane.apiserver.server import ApiServer, ServerOptions
from sandpool.kube.api import Api, Preconditions
from sandpool.kube.http import connect
from sandpool.kube.kubeconfig import load_kubeconfig
from sandpool.loop.reflector import Pace
from sandpool.loop.writes import Writes
from sandpool.model.kinds import SANDBOXES
from sandpool.model.metadata import Key
from sandpool.model.patches import merge_patch
from support.api.implementations import local_objects, outgrow
from support.network.loop_proxy import Proxy, a_proxy
from support.simulated.loop_follow import following

STREAMS = Pace(page=3, streaming=True, first=0.05, most=0.5)
PAGES = Pace(page=3, first=0.05, most=0.5)


@pytest.mark.parametrize("pace", [PAGES, STREAMS], ids=["pages", "stream"])
async def test_lists_then_follows(api: Api, ns: str, pace: Pace) -> None:
    names = [f"m{n}" for n in range(7)]
    for name in names:
        await api.create(SANDBOXES, sandbox(name), ns)
    async with following(api, SANDBOXES, ns, pace) as follow:
        await follow.until_named(names)
        assert len(follow.steps) == 7
        await api.create(SANDBOXES, sandbox("late"), ns)
        await api.patch(SANDBOXES, "m1", merge_patch({"metadata": {"labels": {"seen": "yes"}}}), ns)
        await api.delete(SANDBOXES, "m3", ns)
        await follow.until_named({*names, "late"} - {"m3"})
        shown = follow.cache.get(Key(ns, "m1"))
        assert shown is not None
        assert shown.metadata.labels == {"seen": "yes"}
        assert len(follow.steps) == 10
        assert follow.lists == 1


@pytest.mark.parametrize("pace", [PAGES, STREAMS], ids=["pages", "stream"])
async def test_cut_connections_lose_nothing_and_repeat_nothing(
    api: Api, cuttable: Api, proxy: Proxy, ns: str, pace: Pace
) -> None:
    async with following(cuttable, SANDBOXES, ns, pace) as follow:
        await follow.until_named([])
        wanted: set[str] = set()
        for round_ in range(4):
            await api.create(SANDBOXES, sandbox(f"before{round_}"), ns)
            await proxy.drop()
            await api.create(SANDBOXES, sandbox(f"after{round_}"), ns)
            wanted |= {f"before{round_}", f"after{round_}"}
            await follow.until_named(wanted)
        await proxy.shut()
        await api.delete(SANDBOXES, "before0", ns)
        await proxy.open()
        await follow.until_named(wanted - {"before0"})
        assert len(follow.steps) == 9 == len(set(follow.steps))
        assert follow.lists == 1
        assert proxy.passed > 5


async def test_our_own_writes_show_at_once_and_only_once(api: Api, ns: str) -> None:
    async with following(api, SANDBOXES, ns) as follow:
        await follow.until_named([])
        writes = Writes(api, [follow.cache])
        key = Key(ns, "a")
        made = await writes.create(SANDBOXES, sandbox("a", metadata=metadata("a", finalizers=["example.com/wait"])), ns)
        assert follow.cache.get(key) is not None
        ready = await writes.patch_status(SANDBOXES, "a", merge_patch({"status": {"nodeName": "n1"}}), ns)
        assert follow.cache.get(key) == ready
        held = await writes.delete(SANDBOXES, "a", ns, preconditions=Preconditions(uid=made.metadata.uid))
        assert held is not None
        assert follow.cache.get(key) == held
        assert follow.cache.leaving(held)
        await writes.patch(SANDBOXES, "a", merge_patch({"metadata": {"finalizers": None}}), ns)
        await api.create(SANDBOXES, sandbox("mark"), ns)
        await follow.until_named(["mark"])
        states = [made, ready, held]
        versions = [None, *(state.metadata.resource_version for state in states)]
        steps = [step for step in follow.steps if step[0] == "a"]
        assert steps[:3] == [("a", before, after) for before, after in pairwise(versions)]
        assert steps[-1][2] is None
        assert len(steps) == len(set(steps))
        assert not follow.cache.tombstones


async def test_a_forgotten_revision_leads_to_one_list(tmp_path: Path) -> None:
    """On our own server only: a real one remembers recent changes in its watch cache whatever its etcd has forgotten."""
    async with local_objects(tmp_path, durable=False) as objects:
        local = LocalApi(objects)
        access = open_access(tmp_path / "access", (), datetime.now(UTC))
        server = ApiServer(objects, access, ServerOptions())
        await server.start()
        kubeconfig = tmp_path / "kubeconfig"
        async with a_proxy(server.url) as proxy:
            write_kubeconfig(kubeconfig, proxy.url, access.authority, access.admin_token)
            async with _connected(kubeconfig) as api, following(api, SANDBOXES, "default") as follow:
                await local.create(SANDBOXES, sandbox("old"), "default")
                await follow.until_named(["old"])
                await proxy.shut()
                await local.delete(SANDBOXES, "old", "default")
                await outgrow(local)
                await proxy.open()
                await follow.until_named(["filler"])
                assert follow.lists == 2
        await server.stop()


async def test_a_restarted_server_is_followed_without_a_new_list(tmp_path: Path) -> None:
    """The whole server goes, store and all, and comes back on the same port with what was acknowledged."""
    access = open_access(tmp_path / "access", (), datetime.now(UTC))
    kubeconfig = tmp_path / "kubeconfig"
    first = await _run_server(tmp_path, 0)
    write_kubeconfig(kubeconfig, first.url, access.authority, access.admin_token)
    async with _connected(kubeconfig) as api, following(api, SANDBOXES, "default") as follow:
        await api.create(SANDBOXES, sandbox("before"), "default")
        await follow.until_named(["before"])
        await first.stop()
        second = await _run_server(tmp_path, first.port)
        try:
            await api.create(SANDBOXES, sandbox("after"), "default")
            await follow.until_named(["before", "after"])
            assert follow.lists == 1
            assert len(follow.steps) == 2
        finally:
            await second.stop()


class _Server:
    """A server with a durable store, run by a task of its own."""

    def __init__(self, folder: Path, port: int) -> None:
        self._folder = folder
        self.port = port
        self.url = ""
        self._ready, self._ended = asyncio.Event(), asyncio.Event()
        self._task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        async with local_objects(self._folder, durable=True) as objects:
            access = open_access(self._folder / "access", (), datetime.now(UTC))
            server = ApiServer(objects, access, ServerOptions(port=self.port))
            await server.start()
            self.port, self.url = server.port, server.url
            self._ready.set()
            await self._ended.wait()
            await server.stop()

    async def ready(self) -> None:
        waiting = asyncio.create_task(self._ready.wait())
        await asyncio.wait([waiting, self._task], return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        if self._task.done():
            await self._task

    async def stop(self) -> None:
        self._ended.set()
        await self._task


async def _run_server(folder: Path, port: int) -> _Server:
    server = _Server(folder, port)
    await server.ready()
    return server


def _connected(kubeconfig: Path):  # type: ignore[no-untyped-def]
    return connect(load_kubeconfig([kubeconfig]), clock=SystemClock(), draw=random.random, env=os.environ)
