"""The parts of loop/ over HTTP: against our own API server and, when asked for, against a real one."""

from __future__ import annotations

import contextlib
import os
import random
import secrets
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from sandpool.base.clock import SystemClock
from sandpool.base.errors import SandpoolError
from sandpool.kube.api import Api
from sandpool.kube.config import Config
from sandpool.kube.http import connect
from sandpool.kube.kubeconfig import load_kubeconfig
from sandpool.model.kinds import NAMESPACES
from support.api.implementations import local_objects, served
from support.kube.fixture import hold_server, leave_out, real_kubeconfig
from support.network.loop_proxy import Proxy, a_proxy


@pytest.fixture(scope="session", autouse=True)
def real_server(request: pytest.FixtureRequest) -> Iterator[None]:
    yield from hold_server(request.session)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    leave_out(config, items)


@pytest.fixture(params=["http", pytest.param("kube", marks=pytest.mark.kube)])
async def config(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Config]:
    if request.param == "kube":
        yield load_kubeconfig([real_kubeconfig()])
        return
    async with local_objects(tmp_path, durable=False) as objects, served(objects, tmp_path) as kubeconfig:
        yield load_kubeconfig([kubeconfig])


@pytest.fixture
async def api(config: Config) -> AsyncIterator[Api]:
    async with connect(config, clock=SystemClock(), draw=random.random, env=os.environ) as api:
        yield api


@pytest.fixture
async def proxy(config: Config) -> AsyncIterator[Proxy]:
    async with a_proxy(config.cluster.server) as proxy:
        yield proxy


@pytest.fixture
async def cuttable(config: Config, proxy: Proxy) -> AsyncIterator[Api]:
    """The same server as `api`, by a way that the test can cut."""
    detour = replace(config, cluster=replace(config.cluster, server=proxy.url))
    async with connect(detour, clock=SystemClock(), draw=random.random, env=os.environ) as api:
        yield api


@pytest.fixture
async def ns(api: Api) -> AsyncIterator[str]:
    """A fresh namespace, deleted afterwards without waiting for its end."""
    name = f"loop-{secrets.token_hex(4)}"
    await api.create(NAMESPACES, {"metadata": {"name": name}})
    yield name
    with contextlib.suppress(SandpoolError):
        await api.delete(NAMESPACES, name)
