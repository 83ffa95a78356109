"""A real cluster with a hollow node, and a user who acts on it: makes templates, pools and claims, and waits for what follows."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sandpool.base.clock import SystemClock
from sandpool.kube.errors import ApiError, Conflict, NotFound, Unreachable
from sandpool.kube.http import HttpApi, connect
from sandpool.kube.kubeconfig import load_kubeconfig
from sandpool.model.claim import SandboxClaim
from sandpool.model.conditions import is_true
from sandpool.model.kinds import CLAIMS, NAMESPACES, POOLS, SANDBOXES, TEMPLATES
from sandpool.model.patches import merge_patch
from sandpool.model.reasons import Type
from sandpool.model.resource import Resource
from sandpool.model.sandbox import Sandbox
from support.kube import server as kube_server
from support.kube.access import USER, Identity, install
from support.kube.audit import Audit
from support.kube.ledger import LEDGER
from support.kube.process import Process, hollow_node
from support.kube.server import KubeServer

PATIENCE = 90.0
"""Seconds. Generous: the machine may be busy; nothing is concluded from how long it took."""


@dataclass(frozen=True, slots=True)
class Stage:
    """Made once per module: servers and a node."""

    server: KubeServer
    identity: Identity
    node: Process
    folder: Path

    @property
    def audit(self) -> Audit:
        return Audit(self.server.audit)


@contextlib.contextmanager
def a_stage(folder: Path, run: str, flags: Sequence[str] = ()) -> Iterator[Stage]:
    """`run` is what the ledger calls it; `flags` are further ones of the API server."""
    with kube_server.running(accounts=True, flags=flags) as server, hollow_node(folder, server.kubeconfig) as node:
        stage = Stage(server, install(server), node, folder)
        LEDGER.open(run, stage.audit)
        try:
            yield stage
        finally:
            LEDGER.close(run)


class User:
    """Acts in one namespace, as the cluster's admin."""

    def __init__(self, api: HttpApi, namespace: str) -> None:
        self.api = api
        self.namespace = namespace

    async def template(self, name: str = "python", **spec: Any) -> None:
        pod = {"spec": {"containers": [{"name": "main", "image": "python:3.13"}]}}
        await self.create(TEMPLATES, name, podTemplate=pod, **spec)

    async def pool(self, replicas: int, name: str = "python", template: str = "python", **spec: Any) -> None:
        await self.create(POOLS, name, replicas=replicas, sandboxTemplateRef={"name": template}, **spec)

    async def claim(self, name: str, pool: str = "python", **spec: Any) -> None:
        await self.create(CLAIMS, name, warmPoolRef={"name": pool}, **spec)

    async def create(self, resource: Resource[Any], name: str, **spec: Any) -> None:
        body = {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": {"name": name}, "spec": spec}
        await self.api.create(resource, body, self.namespace)

    async def edit(self, resource: Resource[Any], name: str, **spec: Any) -> None:
        await self.api.patch(resource, name, merge_patch({"spec": spec}), self.namespace)

    async def delete(self, resource: Resource[Any], name: str) -> None:
        await self.api.delete(resource, name, self.namespace)

    async def get(self, resource: Resource[Any], name: str) -> Any:
        return await self.api.get(resource, name, self.namespace)

    async def all(self, resource: Resource[Any]) -> list[Any]:
        return list((await self.api.list(resource, self.namespace)).items)

    async def sandboxes(self) -> list[Sandbox]:
        return await self.all(SANDBOXES)

    async def until(self, holds: Callable[[], Awaitable[object]], what: str, seconds: float = PATIENCE) -> None:
        """Asks again and again; a server that is just being restarted is asked later."""
        deadline = time.monotonic() + seconds
        while True:
            try:
                if await holds():
                    return
                why = ""
            except (Unreachable, ApiError) as error:
                why = repr(error)
            assert time.monotonic() < deadline, f"not within {seconds} s: {what} {why}"
            await asyncio.sleep(0.1)

    async def members(self, pool: str = "python") -> list[Sandbox]:
        """What the pool owns, whatever its status says."""
        owner = (await self.get(POOLS, pool)).metadata.uid
        return [
            one for one in await self.sandboxes() if one.metadata.controller and one.metadata.controller.uid == owner
        ]

    async def filled(self, replicas: int, pool: str = "python", seconds: float = PATIENCE) -> None:
        """So many members are Ready, and the status, which comes a moment later, says so."""

        async def full() -> bool:
            members = await self.members(pool)
            if len(members) != replicas or not all(is_true(one.status.conditions, Type.READY) for one in members):
                return False
            status = (await self.get(POOLS, pool)).status
            return bool(status.ready_replicas == replicas == status.replicas)

        await self.until(full, f"pool {pool} has {replicas} ready members", seconds)

    async def served(self, *names: str, seconds: float = PATIENCE) -> dict[str, str]:
        """All these claims are Ready; the sandbox of each. One that was bound never changes its sandbox."""
        found: dict[str, str] = {}

        async def ready() -> bool:
            wanted = set(names)
            claims: list[SandboxClaim] = [one for one in await self.all(CLAIMS) if one.metadata.name in wanted]
            found.update(
                (one.metadata.name, one.status.sandbox.name)
                for one in claims
                if one.status.sandbox is not None and is_true(one.status.conditions, Type.READY)
            )
            return len(found) == len(wanted)

        await self.until(ready, f"{len(names)} claims are Ready", seconds)
        return found


@contextlib.asynccontextmanager
async def a_user(stage: Stage, namespace: str) -> AsyncIterator[User]:
    """In a namespace of its own, which is deleted at the end; what it leaves is waited for, so that tests do not meet."""
    clock = SystemClock()
    config = load_kubeconfig([stage.server.kubeconfig])
    async with connect(config, clock=clock, draw=random.random, env=os.environ, width=100) as api:
        await api.create(NAMESPACES, {"metadata": {"name": namespace}})
        user = User(api, namespace)
        try:
            yield user
        finally:
            with contextlib.suppress(NotFound, Conflict):
                await api.delete(NAMESPACES, namespace)


__all__ = ["PATIENCE", "USER", "Stage", "User", "a_stage", "a_user"]
