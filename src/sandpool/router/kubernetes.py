"""The router's ports on a Kubernetes cluster: who callers are by TokenReview and SubjectAccessReview, and pods by their addresses.

Using a sandbox is the verb `create` on `sandboxes/connect`, a permission of its own: reading or creating sandboxes does not include
it. RBAC grants it by namespace.

The router is in the same network as the pods; boxd listens at a port like any other. An address comes from the status of a Sandbox.
A user who may write that status could name any address, so those that no pod can have are refused: this machine itself, and the
metadata service of a cloud.
"""

from __future__ import annotations

import asyncio
import os
import socket
from ipaddress import ip_address
from typing import Any

from sandpool.kube.api import Api
from sandpool.model.kinds import SANDBOXES
from sandpool.model.metadata import RawObject
from sandpool.model.resource import Resource
from sandpool.router.ports import Caller, NoAnswer, Target
from sandpool.wire.headers import DEFAULT_PORT

TOKEN_REVIEWS: Resource[RawObject] = Resource(
    "authentication.k8s.io", "v1", "tokenreviews", "TokenReview", RawObject, namespaced=False
)
ACCESS_REVIEWS: Resource[RawObject] = Resource(
    "authorization.k8s.io", "v1", "subjectaccessreviews", "SubjectAccessReview", RawObject, namespaced=False
)
VERB = "create"
SUBRESOURCE = "connect"


class Reviews:
    """An Authority. With `audiences`, only tokens for one of them are accepted, not those for the API server."""

    def __init__(self, api: Api, audiences: tuple[str, ...] = ()) -> None:
        self._api = api
        self._audiences = audiences

    async def caller(self, token: str) -> Caller | None:
        answer = await self._api.create(TOKEN_REVIEWS, token_review(token, self._audiences))
        return reviewed(answer.body, self._audiences)

    async def may_use(self, caller: Caller, namespace: str) -> bool:
        answer = await self._api.create(ACCESS_REVIEWS, access_review(caller, namespace))
        status = answer.body.get("status") or {}
        return status.get("allowed") is True and status.get("denied") is not True


def token_review(token: str, audiences: tuple[str, ...]) -> dict[str, Any]:
    return {"spec": {"token": token, **({"audiences": list(audiences)} if audiences else {})}}


def reviewed(body: dict[str, Any], audiences: tuple[str, ...]) -> Caller | None:
    """The user of a TokenReview. A server that does not support audiences answers without them: then the token is refused, because it
    may be meant for another service."""
    status = body.get("status") or {}
    user = status.get("user") or {}
    name = user.get("username") or ""
    if status.get("authenticated") is not True or not name:
        return None
    if audiences and not set(audiences) & set(status.get("audiences") or ()):
        return None
    extra = tuple(sorted((key, tuple(values or ())) for key, values in (user.get("extra") or {}).items()))
    return Caller(name, user.get("uid") or "", tuple(user.get("groups") or ()), extra)


def access_review(caller: Caller, namespace: str) -> dict[str, Any]:
    attributes = {
        "group": SANDBOXES.group,
        "resource": SANDBOXES.plural,
        "subresource": SUBRESOURCE,
        "verb": VERB,
        "namespace": namespace,
    }
    who: dict[str, Any] = {"user": caller.name, "groups": list(caller.groups)}
    if caller.uid:
        who["uid"] = caller.uid
    if caller.extra:
        who["extra"] = {key: list(values) for key, values in caller.extra}
    return {"spec": {**who, "resourceAttributes": attributes}}


PATIENCE = 5.0
"""Seconds for a connection. A pod is close: one that does not accept within that time is gone."""


class PodReach:
    """A Reach. `loopback`: pods may have addresses of this machine."""

    def __init__(self, daemon_port: int = DEFAULT_PORT, patience: float = PATIENCE, *, loopback: bool = False) -> None:
        self._daemon_port = daemon_port
        self._patience = patience
        self._loopback = loopback

    async def daemon(self, target: Target) -> socket.socket:
        return await self.port(target, self._daemon_port)

    async def port(self, target: Target, port: int) -> socket.socket:
        family = _family(target.address, self._loopback)
        connection = socket.socket(family, socket.SOCK_STREAM)
        try:
            connection.setblocking(False)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            async with asyncio.timeout(self._patience):
                await asyncio.get_running_loop().sock_connect(connection, (target.address, port))
        except OSError as error:  # a timeout is one, too
            connection.close()
            why = os.strerror(error.errno) if error.errno else "no answer in time"
            raise NoAnswer(f"port {port} of pod {target.pod}: {why}") from error
        except BaseException:
            connection.close()
            raise
        return connection


def _family(address: str, loopback: bool) -> socket.AddressFamily:
    try:
        found = ip_address(address)
    except ValueError:
        raise NoAnswer(f"{address!r} is no address") from None
    mapped = getattr(found, "ipv4_mapped", None)
    real = mapped or found
    odd = real.is_unspecified or real.is_link_local or real.is_multicast or real.is_reserved
    if not loopback if real.is_loopback else odd:
        raise NoAnswer(f"{address} is not the address of a pod")
    return socket.AF_INET6 if found.version == 6 else socket.AF_INET
