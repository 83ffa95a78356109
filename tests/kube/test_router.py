"""`sandpool router` on a real API server, with the rights that an installation gives it and no others: callers are known by the
server's own tokens, rights by its roles, and a program runs in a real boxd behind it."""

from __future__ import annotations

import asyncio
import http.client
import json
import re
import socket
import ssl
import time
import urllib.request
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from sandpool import ApiError, AsyncSandbox, Config
from sandpool.app.router import KubeRouterOptions, serve
from sandpool.app.server_tls import ServerTls
from sandpool.install.preflight import CannotStart
from sandpool.install.router import router
from sandpool.install.rules import RBAC
from sandpool.install.settings import ROUTER, Settings
from sandpool.kube.kubeconfig import load_config
from sandpool.loop.serving_tls import read_terms
from sandpool.router.activity import LAST_ACTIVITY, Rhythm
from sandpool.telemetry.pages import Address
from support.kube import server as kube_server
from support.kube.access import create, write_kubeconfig
from support.kube.server import KubeServer
from support.network.boxd_daemon import boxd

pytestmark = [pytest.mark.kube, pytest.mark.timeout(300)]

SYSTEM = "agent-sandbox-system"
GUIDE = Path(__file__).parents[2] / "docs/how-to/production.md"
CLAIMS = "/apis/extensions.agents.x-k8s.io/v1beta1/namespaces/red/sandboxclaims"
BOXES = "/apis/agents.x-k8s.io/v1beta1/namespaces/{}/sandboxes"
ROLES = f"/apis/{RBAC}/v1"
CLAIM = {"apiVersion": "extensions.agents.x-k8s.io/v1beta1", "kind": "SandboxClaim", "name": "mine", "uid": "c-1"}
POOL = {**CLAIM, "kind": "SandboxWarmPool", "name": "python", "uid": "p-1"}
OPEN = ("--no-token", "--token-file", "/dev/null")
"""As in the image: whoever reaches boxd may use it, and only the router does."""
PATHS = {
    "ServiceAccount": f"/api/v1/namespaces/{SYSTEM}/serviceaccounts",
    "ClusterRole": f"{ROLES}/clusterroles",
    "ClusterRoleBinding": f"{ROLES}/clusterrolebindings",
}


@dataclass(frozen=True, slots=True)
class Stage:
    server: KubeServer
    kubeconfig: Path  # of the router's own account
    tokens: dict[str, str]


def token_of(server: KubeServer, namespace: str, account: str, **spec: Any) -> str:
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token"
    return str(server.request("POST", path, {"spec": {"expirationSeconds": 3600, **spec}})["status"]["token"])


def a_box(server: KubeServer, namespace: str, name: str, owner: dict[str, str], address: str) -> None:
    pod = {"spec": {"containers": [{"name": "main", "image": "x"}]}}
    body = {
        "metadata": {"name": name, "ownerReferences": [{**owner, "controller": True}]},
        "spec": {"podTemplate": pod},
    }
    kind = {"apiVersion": "agents.x-k8s.io/v1beta1", "kind": "Sandbox"}
    create(server, BOXES.format(namespace), {**kind, **body})
    ready = {"type": "Ready", "status": "True", "reason": "DependenciesReady", "message": ""}
    status = {"podIPs": [address], "conditions": [{**ready, "lastTransitionTime": "2026-01-01T00:00:00Z"}]}
    path = f"{BOXES.format(namespace)}/{name}/status"
    server.request("PATCH", path, {"status": status}, "application/merge-patch+json")


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    if lacking := kube_server.lacking():
        pytest.skip(lacking)
    with kube_server.running(controllers=False) as server:
        for name in (SYSTEM, "red", "blue"):
            create(server, "/api/v1/namespaces", {"metadata": {"name": name}})
        for body in router(Settings()):
            if body["kind"] in PATHS:
                create(server, PATHS[body["kind"]], body)
        tokens = {}
        for name in ("jane", "joe"):
            create(server, "/api/v1/namespaces/red/serviceaccounts", {"metadata": {"name": name}})
            tokens[name] = token_of(server, "red", name)
        tokens["other audience"] = token_of(server, "red", "jane", audiences=["sandbox-router"])
        role = {"apiGroup": RBAC, "kind": "ClusterRole", "name": f"{ROUTER}-users"}
        jane = [{"kind": "ServiceAccount", "name": "jane", "namespace": "red"}]
        create(
            server,
            f"{ROLES}/namespaces/red/rolebindings",
            {"metadata": {"name": "jane"}, "roleRef": role, "subjects": jane},
        )
        for namespace in ("red", "blue"):
            a_box(server, namespace, "box", CLAIM, "127.0.0.1")
        a_box(server, "red", "waiting", POOL, "127.0.0.1")
        kubeconfig = tmp_path_factory.mktemp("router") / "kubeconfig"
        write_kubeconfig(server, kubeconfig, {"token": token_of(server, SYSTEM, ROUTER)}, SYSTEM)
        yield Stage(server, kubeconfig, tokens)


@dataclass(frozen=True, slots=True)
class Client:
    address: Address

    async def ask(
        self, method: str, path: str, token: str, box: str | None = "box", body: Any = None, **headers: str
    ) -> tuple[int, bytes]:
        given = {"Authorization": f"Bearer {token}", **({"X-Sandbox-ID": box} if box else {})}
        given["X-Sandbox-Namespace"] = "red"
        given.update({name.replace("_", "-"): value for name, value in headers.items()})
        return await asyncio.to_thread(self.send, method, path, body, given)

    def send(self, method: str, path: str, body: Any, headers: dict[str, str]) -> tuple[int, bytes]:
        connection = http.client.HTTPConnection(self.address.host, self.address.port, timeout=30)
        try:
            connection.request(method, path, None if body is None else json.dumps(body), headers)
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()


@asynccontextmanager
async def running(stage: Stage, **options: Any) -> AsyncIterator[Client]:
    config = load_config({}, Path("/"), path=stage.kubeconfig)
    stop, ready = asyncio.Event(), asyncio.get_running_loop().create_future()
    served = KubeRouterOptions(listen_at=Address("127.0.0.1", 0), loopback_pods=True, **options)
    task = asyncio.create_task(serve(served, config, stop, ready=ready.set_result))
    await asyncio.wait((task, ready), return_when=asyncio.FIRST_COMPLETED)
    try:
        if task.done():
            await task
        yield Client(await ready)
    finally:
        stop.set()
        await task


async def test_a_program_runs_for_whom_the_cluster_lets(stage: Stage, tmp_path: Path) -> None:
    key, audit = tmp_path / "key", tmp_path / "audit.log"
    key.write_text("k" * 40)
    with boxd(tmp_path, *OPEN) as daemon:
        options = {"daemon_port": daemon.port, "token_keys": (key,), "audit": audit, "rhythm": Rhythm(delay=0.0)}
        async with running(stage, **options) as client:
            await tried(client, stage, daemon.port)
            await noted(stage)
    lines = [json.loads(line) for line in audit.read_text().splitlines()]
    assert lines[0]["who"] == "system:serviceaccount:red:jane"
    assert {line["status"] for line in lines} >= {200, 201, 401, 403, 404}
    assert not any(token in audit.read_text() for token in stage.tokens.values())


async def tried(client: Client, stage: Stage, daemon_port: int) -> None:
    jane, joe = stage.tokens["jane"], stage.tokens["joe"]
    spec = {"argv": ["/bin/echo", "hello"]}
    frames = {"Accept": "application/x-sandpool-frames"}
    status, output = await client.ask("POST", "/box/v1/processes", jane, body=spec, **frames)
    assert (status, b"hello" in output) == (200, True)
    assert (await client.ask("GET", "/box/v1/health", joe))[0] == 403
    assert (await client.ask("GET", "/box/v1/health", "made-up"))[0] == 401
    assert (await client.ask("GET", "/box/v1/health", jane + "x"))[0] == 401
    assert (await client.ask("GET", "/box/v1/health", stage.tokens["other audience"]))[0] == 401
    assert (await client.ask("GET", "/box/v1/health", jane, X_Sandbox_Namespace="blue"))[0] == 403
    for box, code in (("waiting", "NOT_CLAIMED"), ("absent", "NOT_FOUND")):
        status, body = await client.ask("GET", "/box/v1/health", jane, box)
        assert (status, json.loads(body)["code"]) == (404, code)
    wish = {"sandbox": "box", "namespace": "red"}
    status, body = await client.ask("POST", "/router/v1/tokens", jane, None, wish)
    assert status == 201
    assert (await client.ask("GET", "/box/v1/health", json.loads(body)["token"]))[0] == 200
    wish["port"] = daemon_port  # type: ignore[assignment]
    assert (await client.ask("POST", "/router/v1/tokens", jane, None, wish))[0] == 403


async def noted(stage: Stage) -> None:
    """The use of the sandbox becomes an annotation: the router may write that."""
    path = f"{BOXES.format('red')}/box"
    async with asyncio.timeout(30):
        while LAST_ACTIVITY not in stage.server.request("GET", path)["metadata"].get("annotations", {}):
            await asyncio.sleep(0.1)


async def test_its_metrics_over_https(stage: Stage) -> None:
    with socket.socket() as made:
        made.bind(("127.0.0.1", 0))
        place = Address("127.0.0.1", int(made.getsockname()[1]))
    newest = ServerTls(None, read_terms("VersionTLS13", ""))
    anybody = ssl.create_default_context()
    anybody.check_hostname, anybody.verify_mode = False, ssl.CERT_NONE

    def read() -> str:
        with urllib.request.urlopen(f"https://{place}/metrics", timeout=30, context=anybody) as answer:
            return str(answer.read().decode())

    async with running(stage, metrics_at=place, metrics_tls=newest):
        assert "sandbox_router_" in await asyncio.to_thread(read)


async def test_tokens_for_an_audience_of_its_own(stage: Stage, tmp_path: Path) -> None:
    with boxd(tmp_path, *OPEN) as daemon:
        options = {"daemon_port": daemon.port, "audiences": ("sandbox-router",), "namespaces": ("red",)}
        async with running(stage, **options) as client:
            assert (await client.ask("GET", "/box/v1/health", stage.tokens["other audience"]))[0] == 200
            assert (await client.ask("GET", "/box/v1/health", stage.tokens["jane"]))[0] == 401


async def test_a_forwarded_port_is_somebody_only_if_trusted(stage: Stage, tmp_path: Path) -> None:
    role = {"apiGroup": RBAC, "kind": "ClusterRole", "name": f"{ROUTER}-users"}
    user = [{"apiGroup": RBAC, "kind": "User", "name": "port-forward"}]
    binding = {"metadata": {"name": "forwarded"}, "roleRef": role, "subjects": user}
    create(stage.server, f"{ROLES}/namespaces/red/rolebindings", binding)
    asked = {"X-Sandbox-ID": "box", "X-Sandbox-Namespace": "red"}
    with boxd(tmp_path, *OPEN) as daemon:
        for trusted, status in ((False, 401), (True, 200)):
            async with running(stage, daemon_port=daemon.port, trust_port_forward=trusted) as client:
                found, _ = await asyncio.to_thread(client.send, "GET", "/box/v1/health", None, asked)
                assert found == status
                rebound = {**asked, "Host": "evil.example"}
                found, _ = await asyncio.to_thread(client.send, "GET", "/box/v1/health", None, rebound)
                assert found == (403 if trusted else 401)


async def test_without_its_rights_it_says_which_are_missing(stage: Stage, tmp_path: Path) -> None:
    kubeconfig = tmp_path / "kubeconfig"
    write_kubeconfig(stage.server, kubeconfig, {"token": stage.tokens["joe"]}, "red")
    with pytest.raises(CannotStart) as caught:
        async with running(Stage(stage.server, kubeconfig, {})):
            pass
    for right in (
        "list/watch/patch sandboxes",
        "create tokenreviews.authentication.k8s.io",
        "create subjectaccessreviews",
    ):
        assert right in str(caught.value)
    assert "sandpool install --dry-run" in str(caught.value)


async def test_the_role_of_the_guide_is_what_an_agent_needs(stage: Stage, tmp_path: Path) -> None:
    """With the role of docs/how-to/production.md, and nothing else, the SDK claims, runs, comes back and releases."""
    config = agent(stage, tmp_path)
    with boxd(tmp_path, *OPEN) as daemon:
        async with running(stage, daemon_port=daemon.port) as client, asyncio.timeout(60):
            config = replace(config, router=f"http://{client.address.host}:{client.address.port}")
            serving = asyncio.create_task(asyncio.to_thread(hand_out, stage.server, "agents", "box"))
            async with AsyncSandbox.claim("python", name="agents", ttl=600, config=config) as box:
                await serving
                assert (await box.run("echo $((6 * 7))", check=True)).stdout == "42\n"
                async with AsyncSandbox.attach("agents", config=config) as again:
                    assert (await again.info()).name == "agents"
                assert [one.name for one in await AsyncSandbox.list(config=config)] == ["agents"]
                await box.extend(1200)
                with pytest.warns(UserWarning, match="no file is kept"), pytest.raises(ApiError, match="cannot patch"):
                    await box.suspend()
    assert stage.server.request("GET", CLAIMS)["items"] == []


def agent(stage: Stage, tmp_path: Path) -> Config:
    (text,) = re.findall(r"^```yaml\n(.*?)^```$", GUIDE.read_text(), re.MULTILINE | re.DOTALL)
    role = yaml.safe_load(text.replace("namespace: team-red", "namespace: red"))
    create(stage.server, "/api/v1/namespaces/red/serviceaccounts", {"metadata": {"name": "agent"}})
    create(stage.server, f"{ROLES}/namespaces/red/roles", role)
    who = [{"kind": "ServiceAccount", "name": "agent", "namespace": "red"}]
    what = {"apiGroup": RBAC, "kind": "Role", "name": role["metadata"]["name"]}
    binding = {"metadata": {"name": "agent"}, "roleRef": what, "subjects": who}
    create(stage.server, f"{ROLES}/namespaces/red/rolebindings", binding)
    token = tmp_path / "token"
    token.write_text(token_of(stage.server, "red", "agent"))
    return Config(api=stage.server.url, token_file=token, ca_file=stage.server.ca, namespace="red")


def hand_out(server: KubeServer, claim: str, box: str) -> None:
    """What the controllers would do: the claim is made Ready once it is there."""
    ready = {"type": "Ready", "status": "True", "reason": "DependenciesReady", "message": ""}
    condition = {**ready, "lastTransitionTime": "2026-01-01T00:00:00Z"}
    status = {"sandbox": {"name": box, "podIPs": ["127.0.0.1"]}, "conditions": [condition]}
    while claim not in [one["metadata"]["name"] for one in server.request("GET", CLAIMS)["items"]]:
        time.sleep(0.05)
    server.request("PATCH", f"{CLAIMS}/{claim}/status", {"status": status}, "application/merge-patch+json")
