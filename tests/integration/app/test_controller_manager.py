"""`sandpool controller` in this process, over HTTP, on our own API server."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from sandpool.app.controller_manager import ManagerOptions, Rate, connected, new_elector, serve
from sandpool.app.server_tls import ServerTls
from sandpool.base.clock import SystemClock
from sandpool.install.preflight import CannotStart
from sandpool.install.rules import LEASE
from sandpool.kube.config import Cluster, Config, User
from sandpool.kube.kubeconfig import load_kubeconfig
from sandpool.loop.errors import LeadershipLost, NoPlaceForLease
from sandpool.loop.lease import Terms
from sandpool.loop.lifetimes import first_error
from sandpool.model.kinds import LEASES, PODS, SANDBOXES
from sandpool.model.patches import merge_patch
from sandpool.telemetry.metrics import Metrics
from sandpool.telemetry.pages import Address
from support.api.local_server import LocalServer, local_server
from support.network.scripted_peer import answer, hang, scripted_peer

BRIEF = Terms(duration=3, renew=2, retry=0.2)


def free_port() -> int:
    with socket.socket() as made:
        made.bind(("127.0.0.1", 0))
        return int(made.getsockname()[1])


class Manager:
    """One running manager, and its pages."""

    def __init__(self, server: LocalServer, **more: Any) -> None:
        self.health, self.metrics = (Address("127.0.0.1", free_port()) for _ in range(2))
        self.options = ManagerOptions(
            health_at=self.health, metrics_at=self.metrics, terms=BRIEF, lease_namespace="default", **more
        )
        self._config = load_kubeconfig([server.kubeconfig])
        self.stop = asyncio.Event()
        self.filled = 0

    def _filled(self) -> None:
        self.filled += 1

    async def run(self) -> None:
        try:
            await serve(self.options, self._config, self.stop, filled=self._filled)
        except BaseExceptionGroup as group:
            raise first_error(group) from None

    async def page(self, address: Address, path: str) -> tuple[int, str]:
        try:
            async with aiohttp.ClientSession() as session, session.get(f"http://{address}{path}") as answer:
                return answer.status, await answer.text()
        except aiohttp.ClientConnectorError:
            return 0, ""

    async def ready(self) -> None:
        await until(lambda: self._ready())

    async def _ready(self) -> bool:
        return await self.page(self.health, "/readyz") == (200, "ok\n")

    async def leads(self) -> bool:
        _, text = await self.page(self.metrics, "/metrics")
        return f'sandpool_leader{{lease="{LEASE}"}} 1.0' in text.splitlines()


async def until(holds: Any) -> None:
    async with asyncio.timeout(30):
        while not await holds():
            await asyncio.sleep(0.02)


@asynccontextmanager
async def a_manager(server: LocalServer, **more: Any) -> AsyncIterator[Manager]:
    made = Manager(server, **more)
    async with asyncio.TaskGroup() as group:
        group.create_task(made.run())
        await made.ready()
        yield made
        made.stop.set()


async def sandbox(server: LocalServer, namespace: str, name: str) -> None:
    pod = {"spec": {"containers": [{"name": "main", "image": "python"}]}}
    body = {"metadata": {"name": name}, "spec": {"podTemplate": pod}}
    await server.objects.create(SANDBOXES, namespace, body)


async def pods(server: LocalServer, namespace: str) -> list[str]:
    listed = (await server.request("GET", PODS.path(namespace))).json
    return [item["metadata"]["name"] for item in listed["items"]]


async def test_it_works_leads_and_lets_go(tmp_path: Path) -> None:
    async with local_server(tmp_path) as server:
        async with a_manager(server) as manager:
            await until(manager.leads)
            await sandbox(server, "default", "box")
            await until(lambda: _has(server, "default", ["box"]))
            assert await manager.page(manager.health, "/healthz") == (200, "ok\n")
            _, text = await manager.page(manager.metrics, "/metrics")
            assert 'sandpool_client_requests_total{outcome="ok",resource="pods",verb="create"} 1.0' in text
        lease = (await server.request("GET", LEASES.path("default", LEASE))).json
        assert lease["spec"]["holderIdentity"] == ""


async def _has(server: LocalServer, namespace: str, names: list[str]) -> bool:
    return await pods(server, namespace) == names


async def test_of_two_one_leads_and_both_are_ready(tmp_path: Path) -> None:
    async with local_server(tmp_path) as server, a_manager(server) as first:
        await until(first.leads)
        async with a_manager(server) as second:
            assert not await second.leads()
            assert (first.filled, second.filled) == (1, 1), "one that does not lead yet has settled, too"
            first.stop.set()
            await until(second.leads)
        assert second.filled == 1


async def test_metrics_over_https(tmp_path: Path) -> None:
    async with local_server(tmp_path) as server, a_manager(server, metrics_tls=ServerTls()) as manager:
        url = f"https://{manager.metrics}/metrics"
        async with aiohttp.ClientSession() as session, session.get(url, ssl=False) as answer:
            assert answer.status == 200
            assert "sandpool_leader" in await answer.text()
        assert await manager.page(manager.health, "/healthz") == (200, "ok\n"), "a kubelet asks without TLS"


async def test_only_the_namespaces_that_are_watched(tmp_path: Path) -> None:
    async with local_server(tmp_path) as server:
        watched = ("default", "kube-public")
        async with a_manager(server, namespaces=watched, elect=False) as manager:
            for namespace in (*watched, "kube-system"):
                await sandbox(server, namespace, "box")
            for namespace in watched:
                await until(lambda namespace=namespace: _has(server, namespace, ["box"]))
            assert await pods(server, "kube-system") == []
            _, text = await manager.page(manager.metrics, "/metrics")
            lines = text.splitlines()
            assert 'sandpool_cache_objects{resource="sandboxes.agents.x-k8s.io"} 2.0' in lines  # one of each set
            assert len([line for line in lines if line.startswith("# TYPE")]) == len(
                {line for line in lines if line.startswith("# TYPE")}
            )


async def test_sandboxes_alone(tmp_path: Path) -> None:
    async with local_server(tmp_path) as server, a_manager(server, extensions=False) as manager:
        await sandbox(server, "default", "box")
        await until(lambda: _has(server, "default", ["box"]))
        _, text = await manager.page(manager.metrics, "/metrics")
        assert 'verb="list"' in text
        assert not [line for line in text.splitlines() if "sandboxclaims" in line and "client_requests_total" in line]


async def test_a_lease_without_a_namespace_ends_it(tmp_path: Path) -> None:
    async with local_server(tmp_path) as server:
        made = Manager(server)
        made.options = ManagerOptions(terms=BRIEF, lease_namespace="nowhere")
        with pytest.raises(
            NoPlaceForLease, match=r"namespace nowhere does not exist.*kubectl create namespace nowhere"
        ):
            await made.run()


async def test_a_server_that_is_not_there_is_named(tmp_path: Path) -> None:
    async with local_server(tmp_path) as server:
        made = Manager(server)
    with pytest.raises(CannotStart, match=f"cannot connect to 127.0.0.1.*is the server running.*{server.kubeconfig}"):
        await made.run()


async def test_a_token_that_is_wrong_is_named(tmp_path: Path) -> None:
    async with local_server(tmp_path) as server:
        text = server.kubeconfig.read_text()
        server.kubeconfig.write_text(text.replace(server.token, "wrong"))
        with pytest.raises(CannotStart, match=f"does not accept who we are.*check the token.*{server.kubeconfig}"):
            await Manager(server).run()


async def test_it_ends_when_the_lease_cannot_be_renewed(tmp_path: Path) -> None:
    """The server goes away: nobody may go on writing on a lease that others could hold by now."""
    async with local_server(tmp_path) as server:
        made = Manager(server, elect=True)
        async with asyncio.TaskGroup() as group:
            run = group.create_task(_lost(made))
            await made.ready()
            await until(made.leads)
            await server.server.stop()
            await run


async def test_a_server_that_goes_away_is_a_line_and_a_sum(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Whatever was under way: no traceback for any of it."""
    async with local_server(tmp_path) as server:
        made = Manager(server, elect=True)
        with caplog.at_level(logging.INFO, "sandpool"):
            async with asyncio.TaskGroup() as group:
                run = group.create_task(_lost(made))
                await until(made.leads)
                for number in range(30):
                    await sandbox(server, "default", f"box-{number}")
                await server.server.stop()
                await run
    assert [record.getMessage() for record in caplog.records if record.exc_info] == []
    ours = [record for record in caplog.records if record.name == "sandpool.loop.outage"]
    first, *_, last = ours
    assert first.getMessage() == "calls to the API server fail"
    assert last.getMessage() == "calls to the API server failed"
    assert last.keys["failures"] >= 1  # type: ignore[attr-defined]
    assert len(ours) <= 4


async def _lost(made: Manager) -> None:
    with pytest.raises(LeadershipLost, match=r"is no longer held by .* could not be renewed for \S+ s: \w+: \w"):
        await made.run()


async def test_a_renewal_never_waits_for_connections_that_writes_have_filled() -> None:
    """As many writes as there may be, and more, hang at the server; the lease is renewed on connections of its own."""
    done = asyncio.Event()
    in_flight = 2
    hanging = 3 * in_flight
    lease = {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": LEASE, "uid": "u", "resourceVersion": "7"},
    }
    async with scripted_peer(*[hang(done)] * in_flight, answer(lease), answer(lease)) as peer:
        options = ManagerOptions(rate=Rate(in_flight=in_flight))
        config = Config(Cluster(peer.url), User())
        async with connected(config, options, SystemClock(), Metrics(), {}) as apis:
            writes = [
                asyncio.create_task(apis.work.patch(PODS, f"p{number}", merge_patch({}), "default"))
                for number in range(hanging)
            ]
            try:
                await peer.asked(in_flight)
                elector = new_elector(options, config, apis, SystemClock(), Metrics())
                assert elector is not None
                await elector.acquire()
                assert elector.leading
                hung, renewal = {seen.connection for seen in peer.seen[:in_flight]}, peer.seen[-1]
                assert renewal.path.endswith(f"/leases/{LEASE}")
                assert renewal.connection not in hung
            finally:
                done.set()
                for write in writes:
                    write.cancel()
                await asyncio.gather(*writes, return_exceptions=True)
