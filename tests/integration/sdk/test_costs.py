"""What a claim costs on the wire, counted: connections, requests, and what is shared by those who say nothing about it."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from sandpool import AsyncConnection, AsyncSandbox, Config, Connection, Sandbox
from sandpool.sdk._async import connection as connections
from sandpool.sdk._async.cluster import AT_ONCE
from sandpool.sdk.config import Resolved, resolve_here
from support.network.loop_proxy import Proxy, a_proxy
from support.product.cluster import Cluster, running_cluster

BASE = "/apis/extensions.agents.x-k8s.io/v1beta1/namespaces/default"
POOL = "quick"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with running_cluster(tmp_path_factory.mktemp("costs") / "data") as found:
        pod = {"spec": {"containers": [{"name": "main", "image": "python"}]}}
        kind = {"apiVersion": BASE.split("/", 2)[2].partition("/namespaces")[0], "metadata": {"name": POOL}}
        found.request(
            "POST", f"{BASE}/sandboxtemplates", {**kind, "kind": "SandboxTemplate", "spec": {"podTemplate": pod}}
        )
        spec = {"replicas": 40, "sandboxTemplateRef": {"name": POOL}}
        found.request("POST", f"{BASE}/sandboxwarmpools", {**kind, "kind": "SandboxWarmPool", "spec": spec})
        yield found


@dataclass
class Way:
    proxy: Proxy
    resolved: Resolved


@pytest.fixture
async def way(cluster: Cluster) -> AsyncIterator[Way]:
    """To the API server, past somebody who counts connections."""
    found = resolve_here(Config(data_dir=cluster.data_dir))
    async with a_proxy(found.cluster.server) as proxy:
        yield Way(proxy, replace(found, cluster=replace(found.cluster, server=proxy.url)))


async def test_claims_one_after_the_other_need_at_most_two_connections(way: Way) -> None:
    async with AsyncConnection(resolved=way.resolved) as connection:
        for _ in range(5):
            async with AsyncSandbox.claim(POOL, connection=connection):
                pass
    assert way.proxy.passed <= 2, "one hears what becomes of claims, one makes and deletes them"


async def test_the_same_without_an_event_loop(way: Way) -> None:
    def work() -> None:
        with Connection(resolved=way.resolved) as connection:
            for _ in range(5):
                with Sandbox.claim(POOL, connection=connection):
                    pass

    await asyncio.to_thread(work)
    assert way.proxy.passed <= 2


async def test_many_claims_at_once_share_a_few_connections(way: Way) -> None:
    async def one(connection: AsyncConnection) -> str:
        async with AsyncSandbox.claim(POOL, connection=connection) as box:
            return box.sandbox

    async with AsyncConnection(resolved=way.resolved) as connection:
        got = await asyncio.gather(*(one(connection) for _ in range(100)))
    assert len(set(got)) == 100
    assert way.proxy.passed <= AT_ONCE + 1


async def test_many_threads_share_them_too(way: Way) -> None:
    def one(connection: Connection) -> str:
        with Sandbox.claim(POOL, connection=connection) as box:
            return box.sandbox

    def work() -> list[str]:
        with Connection(resolved=way.resolved) as connection, ThreadPoolExecutor(30) as threads:
            return list(threads.map(one, [connection] * 60))

    assert len(set(await asyncio.to_thread(work))) == 60
    assert way.proxy.passed <= AT_ONCE + 1


@pytest.fixture
def by_default(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SANDPOOL_DATA_DIR", str(cluster.data_dir))


async def client_of(box: AsyncSandbox) -> str:
    """The mark of the connection that it was claimed on."""
    return (await box.info()).labels["sandpool.dev/client"]


@pytest.mark.usefixtures("by_default")
async def test_sandboxes_share_a_connection_unless_told_otherwise(cluster: Cluster) -> None:
    config = Config(data_dir=cluster.data_dir)
    async with (
        AsyncSandbox.claim(POOL) as one,
        AsyncSandbox.claim(POOL) as two,
        AsyncSandbox.claim(POOL, config=config) as other,
    ):
        shared = await client_of(one)
        assert await client_of(two) == shared
        assert await client_of(other) != shared
    async with AsyncSandbox.claim(POOL) as again:
        assert await client_of(again) == shared, "those who come later, too"


@pytest.mark.usefixtures("by_default")
async def test_it_leads_where_the_configuration_says_now(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    sharing = await connections.SHARED.get()
    async with AsyncSandbox.claim(POOL) as one:
        lease = await sharing.lease()
        old = lease.connection
        await lease.end()
        assert await client_of(one) == old.mark
        monkeypatch.setenv("SANDPOOL_NAMESPACE", "default")
        async with AsyncSandbox.claim(POOL) as same:
            assert await client_of(same) == old.mark, "it says the same"
        monkeypatch.setenv("SANDPOOL_NAMESPACE", "kube-system")
        lease = await sharing.lease()
        assert lease.connection is not old
        await lease.end()
        assert await one.info(), "whoever has the old one keeps it"
        assert old.cluster.http is not None
        assert not old.cluster.http.closed
    assert old.cluster.http.closed, "the last one closed it"


SYNC = f"""
from sandpool import Sandbox
for _ in range(3):
    with Sandbox.claim("{POOL}"):
        pass
"""
ASYNC = f"""
import asyncio
from sandpool import AsyncSandbox
async def main():
    asyncio.get_running_loop().slow_callback_duration = 60  # a busy machine is slow, which is no news of ours
    for _ in range(3):
        async with AsyncSandbox.claim("{POOL}"):
            pass
asyncio.run(main())
asyncio.run(main())
"""
FORKED = f"""
import os
from sandpool import Sandbox
with Sandbox.claim("{POOL}") as box:
    child = os.fork()
    if child == 0:
        with Sandbox.claim("{POOL}") as other:
            assert other._connection is not box._connection
            assert other.info().state == "Ready"
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert box.info().state == "Ready"
with Sandbox.claim("{POOL}") as again:
    assert again._connection is box._connection
"""


@pytest.mark.parametrize("program", [SYNC, ASYNC, FORKED], ids=["sync", "async", "forked"])
@pytest.mark.usefixtures("by_default")
def test_a_program_ends_without_a_word(program: str) -> None:
    """Nothing is left open, nothing is warned of, and a child of a fork does not touch what its parent uses."""
    command: list[Any] = [sys.executable, "-X", "dev", "-W", "error", "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60, env=os.environ)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_nothing_that_serves_is_loaded_by_a_claim(cluster: Cluster, tmp_path: Path) -> None:
    program = f"""
import sys
from sandpool import Sandbox
with Sandbox.claim("{POOL}"):
    pass
print(sorted({{"asyncio", "aiohttp", "rich", "mcp", "httptools", "uvloop", "cryptography"}} & set(sys.modules)))
"""
    env = {**os.environ, "SANDPOOL_DATA_DIR": str(cluster.data_dir)}
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, env=env, timeout=60
    )
    assert done.stdout.strip() == "[]"
