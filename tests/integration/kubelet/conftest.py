"""A kubelet on each way to reach an API server: in the same process, over HTTP, and a real kube-apiserver over HTTP."""

from __future__ import annotations

import asyncio
import secrets
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import pytest

from sandpool.base.clock import SystemClock
from sandpool.controlplane.api import LocalApi
from sandpool.controlplane.apiserver.access.directory import open_access, write_kubeconfig
from sandpool.controlplane.apiserver.handlers.runtime import NoRuntime
from sandpool.controlplane.apiserver.server import ApiServer, ServerOptions
from sandpool.controlplane.namespaces import ensure_namespaces
from sandpool.controlplane.objects.objects import Objects
from sandpool.controlplane.store.log import MemoryLog
from sandpool.controlplane.store.store import Store
from sandpool.kube.api import Api
from sandpool.kube.errors import NotFound
from sandpool.model.kinds import NAMESPACES, NODES
from sandpool.node.kubelet.agent import Kubelet
from sandpool.node.kubelet.options import KubeletOptions
from sandpool.node.runtimes.fake import FakeBackend
from support.api.implementations import over_http
from support.kube.fixture import hold_server, leave_out, real_kubeconfig


@pytest.fixture(scope="session", autouse=True)
def real_server(request: pytest.FixtureRequest) -> Iterator[None]:
    yield from hold_server(request.session)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    leave_out(config, items)


@dataclass
class Cluster:
    """An Api, how kubectl reaches the same cluster, and a namespace of the test's own."""

    api: Api
    kubeconfig: Path
    namespace: str
    kubelet: Kubelet


@asynccontextmanager
async def _reached(name: str, folder: Path) -> AsyncIterator[tuple[Api, Path]]:
    if name == "kube":
        async with over_http(name, real_kubeconfig(), None) as implementation:
            yield implementation.api, real_kubeconfig()
        return
    async with AsyncExitStack() as stack:
        store = await Store.open(MemoryLog())
        stack.push_async_callback(store.close)
        objects = Objects(store, lambda: datetime.now(UTC), lambda: str(uuid.uuid4()))
        await ensure_namespaces(objects)
        access = open_access(folder / "access", (), datetime.now(UTC))
        server = ApiServer(objects, access, ServerOptions(), runtime=NoRuntime("the backend hollow runs nothing"))
        await server.start()
        stack.push_async_callback(server.stop)
        kubeconfig = folder / "kubeconfig"
        write_kubeconfig(kubeconfig, server.url, access.authority, access.admin_token)
        if name == "local":
            yield LocalApi(objects), kubeconfig
        else:
            implementation = await stack.enter_async_context(over_http(name, kubeconfig, None))
            yield implementation.api, kubeconfig


@pytest.fixture(params=["local", "http", pytest.param("kube", marks=pytest.mark.kube)])
async def cluster(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Cluster]:
    async with _reached(request.param, tmp_path) as (api, kubeconfig):
        namespace = f"kubelet-{secrets.token_hex(4)}"
        await api.create(NAMESPACES, {"metadata": {"name": namespace}})
        clock = SystemClock()
        options = KubeletOptions(node=f"node-{secrets.token_hex(4)}")
        kubelet = Kubelet(api, FakeBackend(clock), clock, options)
        async with asyncio.TaskGroup() as parts:
            running = parts.create_task(kubelet.run())
            yield Cluster(api, kubeconfig, namespace, kubelet)
            running.cancel()
        with suppress(NotFound):  # a short test may end before the node is there
            await api.delete(NODES, options.node)
        await api.delete(NAMESPACES, namespace)
