"""The unmodified `k8s-agent-sandbox` package on a local cluster: it claims from the first pool, runs commands and moves files.

In its direct mode, with our router's address, in both its flavours; and as a program that is told nothing but a kubeconfig: through
kubectl, which it starts itself to reach the router's Service.
"""

from __future__ import annotations

import asyncio
import io
import os
import random
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from k8s_agent_sandbox.exceptions import SandboxRequestError
from k8s_agent_sandbox.models import SandboxDirectConnectionConfig

from sandpool.model.kinds import CLAIMS, POOLS
from support.kube.kubectl import kubectl_path
from support.product.cluster import Cluster, running_cluster, sandpool
from support.product.cluster_watch import became
from support.upstream.agent_sandbox_sdk import FLAVOURS, Sdk, do

ODD_NAMES = ("100% sure.txt", "a#b?c.txt", "é ü.txt", "a+b&c=d.txt", "deep/er/file.txt")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with running_cluster(tmp_path_factory.mktemp("wheel"), "--backend", "namespaces", "--pool", "python=3") as made:
        became(made.data_dir, POOLS, lambda pools: pools["python"].status.ready_replicas == 3)
        yield made


def token_of(kubeconfig: Path) -> str:
    token: str = yaml.safe_load(kubeconfig.read_text())["users"][0]["user"]["token"]
    return token


def direct(cluster: Cluster, token: str) -> SandboxDirectConnectionConfig:
    return SandboxDirectConnectionConfig(
        api_url=cluster.running.router, extra_headers={"Authorization": f"Bearer {token}"}
    )


@pytest.fixture(params=FLAVOURS)
def sdk(request: pytest.FixtureRequest, cluster: Cluster) -> Sdk:
    kubeconfig = cluster.data_dir / "kubeconfig"
    return Sdk(request.param, kubeconfig, "default", direct(cluster, token_of(kubeconfig)))


@pytest.fixture
async def box(sdk: Sdk) -> AsyncIterator[Any]:
    async with sdk.client() as client:
        yield await sdk.create(client, "python")


async def a_session(sdk: Sdk, cluster: Cluster) -> None:
    """What the package is for, from the first call to the last."""
    async with sdk.client() as client:
        box = await sdk.create(client, "python")
        ran = await do(box.commands.run, "python3 -c 'print(6*7)'")
        assert (ran.stdout, ran.stderr, ran.exit_code) == ("42\n", "", 0)
        await do(box.files.write, "hello.py", "print('hello from a file')")
        ran = await do(box.commands.run, "python3 hello.py")
        assert (ran.stdout, ran.exit_code) == ("hello from a file\n", 0)
        assert await do(box.files.read, "hello.py") == b"print('hello from a file')"
        assert [one.name for one in await do(box.files.list, ".") if one.type == "file"] == ["hello.py"]
        assert await do(box.files.exists, "hello.py") is True
        assert await do(box.files.exists, "absent.py") is False
        assert (await do(box.status))[0] == "SandboxReady"
        claim = box.claim_name
        await do(box.terminate)
    await asyncio.to_thread(became, cluster.data_dir, CLAIMS, lambda claims: claim not in claims)


async def test_a_session_in_direct_mode(sdk: Sdk, cluster: Cluster) -> None:
    await a_session(sdk, cluster)


@pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning")  # the package leaves the output of its kubectl open
@pytest.mark.kubectl
@pytest.mark.parametrize("websockets", ["true", "false"])
async def test_a_session_through_the_default_tunnel(
    cluster: Cluster, websockets: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", f"{Path(kubectl_path()).parent}:{os.environ['PATH']}")
    monkeypatch.setenv("KUBECTL_PORT_FORWARD_WEBSOCKETS", websockets)
    await a_session(Sdk("sync", cluster.data_dir / "kubeconfig", "default"), cluster)


@pytest.mark.parametrize("flavour", FLAVOURS)
async def test_a_session_of_somebody_who_has_one_namespace(flavour: str, cluster: Cluster, tmp_path: Path) -> None:
    kubeconfig = tmp_path / "mine"
    kubeconfig.write_text(sandpool("token", *cluster.flag, "--namespace", "default").stdout)
    kubeconfig.chmod(0o600)
    await a_session(Sdk(flavour, kubeconfig, "default", direct(cluster, token_of(kubeconfig))), cluster)


async def test_commands_that_fail_or_take_too_long(box: Any) -> None:
    ran = await do(box.commands.run, "ls /no/such/place")
    assert ran.exit_code not in (0, -1)
    assert "/no/such/place" in ran.stderr
    ran = await do(box.commands.run, "python3 -c 'import sys; sys.exit(7)'")
    assert (ran.exit_code, ran.timed_out) == (7, False)
    ran = await do(box.commands.run, "sleep 600", command_timeout=0.5)
    assert ran.timed_out is True
    assert ran.exit_code != 0
    much = await do(box.commands.run, "python3 -c \"print('x' * 5_000_000)\"")
    assert len(much.stdout) == 5_000_001


async def test_files_of_every_kind(box: Any) -> None:
    data = random.Random(1).randbytes(3_000_000)
    await do(box.files.write, "data.bin", data)
    assert await do(box.files.read, "data.bin") == data
    await do(box.files.write, "streamed.bin", io.BytesIO(data))
    ran = await do(box.commands.run, "cmp data.bin streamed.bin")
    assert ran.exit_code == 0, ran
    for number, name in enumerate(ODD_NAMES):
        await do(box.files.write, name, str(number))
        assert await do(box.files.read, name) == str(number).encode(), name
        assert await do(box.files.exists, name) is True, name
    sizes = {one.name: one.size for one in await do(box.files.list, ".")}
    assert sizes["data.bin"] == len(data)
    assert set(sizes) >= {name for name in ODD_NAMES if "/" not in name} | {"deep"}
    assert [one.name for one in await do(box.files.list, "deep/er")] == ["file.txt"]
    with pytest.raises(SandboxRequestError) as absent:
        await do(box.files.read, "no-such-file")
    assert absent.value.status_code == 404


async def test_reading_into_a_file_with_a_limit(box: Any, sdk: Sdk) -> None:
    await do(box.files.write, "ten", b"0123456789")
    written = io.BytesIO()
    into: Any = written if sdk.flavour == "sync" else Awaited(written)
    assert await do(box.files.read_to, "ten", into) == 10
    assert written.getvalue() == b"0123456789"
    with pytest.raises(RuntimeError):
        await do(box.files.read_to, "ten", into, max_bytes=3)


class Awaited:
    """A file as the asynchronous client wants it."""

    def __init__(self, inner: io.BytesIO) -> None:
        self._inner = inner

    async def write(self, data: bytes) -> int:
        return self._inner.write(data)


@pytest.mark.parametrize("token", ["", "wrong"])
async def test_without_a_good_token_nothing_is_done(cluster: Cluster, token: str) -> None:
    kubeconfig = cluster.data_dir / "kubeconfig"
    config = SandboxDirectConnectionConfig(
        api_url=cluster.running.router, extra_headers={"Authorization": f"Bearer {token}"} if token else {}
    )
    sdk = Sdk("sync", kubeconfig, "default", config)
    async with sdk.client() as client:
        box = await sdk.create(client, "python")
        with pytest.raises(SandboxRequestError) as refused:
            await do(box.commands.run, "true")
        assert refused.value.status_code == 401
