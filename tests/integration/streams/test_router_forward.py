"""`kubectl port-forward svc/sandbox-router-svc`: the way of existing clients to the router inside this process."""

from __future__ import annotations

import asyncio
import contextlib
import re
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from subprocess import PIPE, Popen

import aiohttp
import pytest

from sandpool.base.clock import SystemClock
from sandpool.controlplane.api import LocalApi
from sandpool.controlplane.apiserver.call import Call
from sandpool.controlplane.apiserver.handlers.runtime import NoRuntime, Runtime
from sandpool.controlplane.apiserver.response import Response
from sandpool.controlplane.apiserver.streams.serving import PodStreams
from sandpool.controlplane.router_pod import POD, RouterNode, RouterPod, RouterStreams, pod_body
from sandpool.model.kinds import PODS, SERVICE_ACCOUNTS
from sandpool.model.patches import merge_patch
from sandpool.node.runtimes.fake import FakeBackend
from sandpool.wire.router_service import NAMESPACE, SERVICE
from support.api.local_server import LocalServer, local_server
from support.kube.kubectl import Kubectl, kubectl_path
from support.node.streaming import now

OFF = {"KUBECTL_REMOTE_COMMAND_WEBSOCKETS": "false", "KUBECTL_PORT_FORWARD_WEBSOCKETS": "false"}
PODS_PATH = f"/api/v1/namespaces/{NAMESPACE}/pods"


class Plugged:
    """Plugged in when there is a server to make it with."""

    def __init__(self) -> None:
        self.inner: Runtime = NoRuntime()

    async def serve(self, call: Call, pod: bytes) -> Response:
        return await self.inner.serve(call, pod)


@dataclass(slots=True)
class Responder:
    """A very small router: it says which path was asked for."""

    tasks: set[asyncio.Task[None]] = field(default_factory=set)
    full: bool = False

    def take(self, sock: socket.socket) -> None:
        if self.full:
            raise OSError("too many connections")
        self.tasks.add(asyncio.create_task(self._answer(sock)))

    async def _answer(self, sock: socket.socket) -> None:
        reader, writer = await asyncio.open_unix_connection(sock=sock)
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while head := await reader.readuntil(b"\r\n\r\n"):
                body = b"router: " + head.split()[1]
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%s" % (len(body), body))
        writer.close()

    async def close(self) -> None:
        await asyncio.gather(*self.tasks)


@dataclass(slots=True)
class Here:
    server: LocalServer
    router: RouterPod
    responder: Responder


@pytest.fixture
async def here(tmp_path: Path) -> AsyncIterator[Here]:
    clock, plug, responder = SystemClock(), Plugged(), Responder()
    async with local_server(tmp_path, runtime=plug) as server:
        router = RouterPod(LocalApi(server.objects), clock)
        node = RouterNode(FakeBackend(clock), router, responder.take)
        plug.inner = RouterStreams(router, PodStreams(node, now))
        async with router.shown():
            yield Here(server, router, responder)
    await responder.close()


@asynccontextmanager
async def forwarded(kubectl: Kubectl, *what: str, spdy: bool = False) -> AsyncIterator[tuple[Popen[bytes], int]]:
    with Popen(
        kubectl.command("port-forward", *what), stdout=PIPE, stderr=PIPE,
        env=kubectl.environment() | (OFF if spdy else {}),
    ) as process:  # fmt: skip
        try:
            assert process.stdout is not None
            found = re.search(rb"127\.0\.0\.1:(\d+) ->", await asyncio.to_thread(process.stdout.readline))
            assert found, process.communicate()[1]
            yield process, int(found[1])
        finally:
            process.kill()


@pytest.mark.kubectl
@pytest.mark.parametrize("spdy", [False, True])
async def test_forwarding_to_the_service_reaches_the_router(here: Here, tmp_path: Path, spdy: bool) -> None:
    kubectl_path()
    kubectl = Kubectl(here.server.kubeconfig, tmp_path, NAMESPACE)
    async with forwarded(kubectl, f"svc/{SERVICE}", ":8080", spdy=spdy) as (_, port):

        async def ask(number: int) -> str:
            async with aiohttp.ClientSession() as session:
                answer = await session.get(f"http://127.0.0.1:{port}/{number}")
                return await answer.text()

        assert await asyncio.gather(*map(ask, range(20))) == [f"router: /{number}" for number in range(20)]
        # It is made anew when somebody changes it; who forwards already still gets there.
        before = await here.server.request("GET", f"{PODS_PATH}/{POD}")
        await LocalApi(here.server.objects).patch(
            PODS, POD, merge_patch({"metadata": {"labels": {"more": "x"}}}), NAMESPACE
        )
        while (await here.server.request("GET", f"{PODS_PATH}/{POD}")).body == before.body:
            await asyncio.sleep(0.01)
        assert await ask(99) == "router: /99"


@pytest.mark.kubectl
async def test_another_port_and_a_router_that_is_full_are_said(here: Here, tmp_path: Path) -> None:
    kubectl_path()
    kubectl = Kubectl(here.server.kubeconfig, tmp_path, NAMESPACE)
    here.responder.full = True
    for port, words in (
        (9090, b"the router is reached at port 8080 only, not at 9090"),
        (8080, b"too many connections"),
    ):
        async with forwarded(kubectl, f"pod/{POD}", f":{port}") as (process, local):
            reader, writer = await asyncio.open_connection("127.0.0.1", local)
            assert await reader.read() == b""
            writer.close()
            assert process.stderr is not None
            assert words in await asyncio.to_thread(process.stderr.readline)


@pytest.mark.kubectl
async def test_it_shows_as_a_running_pod(here: Here, tmp_path: Path) -> None:
    kubectl_path()
    kubectl = Kubectl(here.server.kubeconfig, tmp_path, NAMESPACE)
    shown = (await asyncio.to_thread(kubectl, "get", "pod,svc")).split()
    assert f"pod/{POD}" in shown
    assert shown[shown.index(f"pod/{POD}") + 1 :][:2] == ["1/1", "Running"]
    assert f"service/{SERVICE}" in shown
    said = await asyncio.to_thread(kubectl.run, "exec", POD, "--", "true")
    assert 'pods "sandbox-router" cannot serve "exec": it stands for the router inside sandpool' in said.err
    said = await asyncio.to_thread(kubectl.run, "attach", POD)
    assert 'cannot serve "attach"' in said.err
    said = await asyncio.to_thread(kubectl.run, "logs", POD)
    assert 'pods "sandbox-router" has no log' in said.err
    assert "sandpool.log" in said.err


async def test_only_who_may_do_everything_may_forward_to_it(here: Here) -> None:
    """A token of that one namespace would otherwise reach the sandboxes of all."""
    await here.server.objects.create(SERVICE_ACCOUNTS, NAMESPACE, {"metadata": {"name": "user"}})
    account = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/user/token"
    token = (await here.server.request("POST", account, {"spec": {}})).json["status"]["token"]
    headers = {"Connection": "Upgrade", "Upgrade": "SPDY/3.1", "X-Stream-Protocol-Version": "portforward.k8s.io"}
    path = f"{PODS_PATH}/{POD}/portforward"
    refused = await here.server.request("POST", path, token=token, headers=headers)
    assert refused.status == 403
    assert "send your token to its own address instead" in refused.json["message"]


async def test_a_pod_of_that_name_and_kind_elsewhere_is_not_the_router(here: Here) -> None:
    """What others can write, labels, annotations, the name, never leads to the router."""
    api = LocalApi(here.server.objects)
    made = await api.create(PODS, pod_body(), "default")
    status = {"phase": "Running", "containerStatuses": []}
    await api.patch_status(PODS, POD, merge_patch({"status": status}), "default")
    assert not here.router.stands_for(made.metadata.uid)
    said = await here.server.request("GET", f"/api/v1/namespaces/default/pods/{POD}/log?container=router")
    assert "stands for the router" not in said.json["message"]


@pytest.mark.kubectl
async def test_who_deletes_it_sees_it_go_and_come_back(here: Here, tmp_path: Path) -> None:
    kubectl_path()
    kubectl = Kubectl(here.server.kubeconfig, tmp_path, NAMESPACE)
    await asyncio.to_thread(kubectl, "delete", "pod", POD, "--timeout=30s")
    while (await here.server.request("GET", f"{PODS_PATH}/{POD}")).status == 404:
        await asyncio.sleep(0.05)
    await asyncio.to_thread(kubectl, "wait", "pod", POD, "--for=condition=Ready", "--timeout=30s")
