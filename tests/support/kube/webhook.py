"""A validating webhook of a test: a real API server asks it about every write of one kind in one namespace.

It refuses, or it holds a write in the middle, after the controller has decided and before the server has done it: whatever
the test does meanwhile came first. That is how races between two writers are made to happen on a real server, each time.
"""

from __future__ import annotations

import asyncio
import base64
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from aiohttp import web

from sandpool.model.kinds import CONFIG_MAPS
from sandpool.model.resource import Resource
from support.kube.access import USER
from support.kube.certificates import Authority
from support.kube.server import KubeServer
from support.kube.stage import Stage, User
from support.network.scripted_peer import Peer, forever, scripted_peer

Json = dict[str, Any]
Judge = Callable[[Json], Awaitable[str]]
"""Gets the `request` of a review; answers why it is refused, or nothing."""
CONFIGURATIONS = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
SECONDS = 30


@asynccontextmanager
async def a_webhook(
    stage: Stage, user: User, folder: Path, kind: Resource[Any], judge: Judge, *, verb: str = "CREATE", part: str = ""
) -> AsyncIterator[None]:
    """The server asks `judge` about writes of this kind, in the user's namespace, while the body runs."""
    authority = Authority("webhook")
    authority.write_ca(folder / "ca")
    authority.write_server(folder / "server", names=[], addresses=["127.0.0.1"])
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(folder / "server.crt", folder / "server.key")

    async def answered(request: web.Request) -> web.StreamResponse:
        review = await request.json()
        asked = review["request"]
        why = "" if asked["resource"]["resource"] == CONFIG_MAPS.plural else await judge(asked)
        answer = {"uid": asked["uid"], "allowed": not why, "status": {"message": why}}
        return web.json_response({"apiVersion": review["apiVersion"], "kind": review["kind"], "response": answer})

    async with scripted_peer(forever(answered), tls=tls) as peer:
        rules = [_rule(kind, verb, part), _rule(CONFIG_MAPS, "CREATE")]
        body = _configuration(user.namespace, peer.url, (folder / "ca.crt").read_bytes(), rules)
        await asyncio.to_thread(stage.server.request, "POST", CONFIGURATIONS, body)
        try:
            await user.until(lambda: _asks(stage.server, user.namespace, peer), "the server asks the webhook")
            yield
        finally:
            await asyncio.to_thread(stage.server.request, "DELETE", f"{CONFIGURATIONS}/{body['metadata']['name']}")


class Gate:
    """Holds what the controllers write, from the first such write on, until it is opened."""

    def __init__(self) -> None:
        self.reached = asyncio.Event()
        self.held: Json = {}  # the first object that is held, as the server would store it
        self._open = asyncio.Event()

    async def __call__(self, asked: Json) -> str:
        if asked["userInfo"]["username"] == USER:
            self.held = self.held or asked["object"]
            self.reached.set()
            await self._open.wait()
        return ""

    def open(self) -> None:
        self._open.set()


@asynccontextmanager
async def a_gate(
    stage: Stage, user: User, folder: Path, kind: Resource[Any], *, verb: str = "CREATE", part: str = ""
) -> AsyncIterator[Gate]:
    gate = Gate()
    async with a_webhook(stage, user, folder, kind, gate, verb=verb, part=part):
        try:
            yield gate
        finally:
            gate.open()


async def _asks(server: KubeServer, namespace: str, peer: Peer) -> bool:
    """A configuration takes a moment to be heard of."""
    path = f"{CONFIG_MAPS.path(namespace)}?dryRun=All"
    await asyncio.to_thread(server.request, "POST", path, {"metadata": {"name": "probe"}})
    return bool(peer.seen)


def _rule(kind: Resource[Any], verb: str, part: str = "") -> Json:
    resource = f"{kind.plural}/{part}" if part else kind.plural
    return {"apiGroups": [kind.group], "apiVersions": ["*"], "operations": [verb], "resources": [resource]}


def _configuration(namespace: str, url: str, ca: bytes, rules: list[Json]) -> Json:
    one = {
        "name": "test.example.com",
        "rules": rules,
        "clientConfig": {"url": url, "caBundle": base64.b64encode(ca).decode()},
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
        "sideEffects": "None",
        "timeoutSeconds": SECONDS,
        "admissionReviewVersions": ["v1"],
    }
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": f"of-{namespace}"},
        "webhooks": [one],
    }
