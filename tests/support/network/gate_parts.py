"""A gate on parts that a test holds in its hands: sandboxes in a cache, callers in a dict, connections that are socket pairs."""

from __future__ import annotations

import json
import socket
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from prometheus_client import CollectorRegistry

from sandpool.base.clock import Clock
from sandpool.base.errors import SandpoolError
from sandpool.kube.api import Event, EventType
from sandpool.loop.cache import Cache
from sandpool.model.codec import decode
from sandpool.model.kinds import SANDBOXES
from sandpool.model.sandbox import Sandbox
from sandpool.router.activity import Activity
from sandpool.router.audit import Entry
from sandpool.router.authentication import AuthorityCache, RequestAuthenticator
from sandpool.router.directory import Directory
from sandpool.router.gate import GateOptions, RouterGate
from sandpool.router.ports import Caller, NoAnswer, Target
from sandpool.router.request_log import RequestLog
from sandpool.router.tokens import Signer
from sandpool.router.values import Admitted, Answer, Peer, Request
from sandpool.telemetry.router_metrics import RouterMetrics
from support.clocks.manual_clock import ManualClock

KEY = b"k" * 32
POOL = {"apiVersion": "extensions.agents.x-k8s.io/v1beta1", "kind": "SandboxWarmPool", "name": "python", "uid": "p-1"}
CLAIM = {"apiVersion": "extensions.agents.x-k8s.io/v1beta1", "kind": "SandboxClaim", "name": "mine", "uid": "c-1"}
READY = {"type": "Ready", "status": "True", "reason": "DependenciesReady", "message": ""}
NEVER = datetime(2000, 1, 1, tzinfo=UTC)


def a_sandbox(
    name: str = "box",
    namespace: str = "default",
    *,
    uid: str = "u-1",
    owner: dict[str, Any] | None = CLAIM,
    conditions: tuple[dict[str, Any], ...] = (READY,),
    ips: tuple[str, ...] = ("10.0.0.7",),
    revision: int = 1,
    metadata: dict[str, Any] | None = None,
    **spec: Any,
) -> Sandbox:
    owners = [{**owner, "controller": True}] if owner else []
    body = {
        "metadata": {
            "name": name,
            "namespace": namespace,
            "uid": uid,
            "resourceVersion": str(revision),
            "ownerReferences": owners,
            **(metadata or {}),
        },
        "spec": {"podTemplate": {"spec": {"containers": []}}, **spec},
        "status": {
            "conditions": [{"lastTransitionTime": "2026-01-01T00:00:00Z", **one} for one in conditions],
            "podIPs": list(ips),
        },
    }
    return decode(SANDBOXES, json.dumps(body).encode())


@dataclass
class Register:
    """An Authority: tokens by their caller, callers by their namespaces."""

    tokens: dict[str, str] = field(default_factory=lambda: {"admin-token": "admin", "other-token": "other"})
    rights: dict[str, set[str]] = field(default_factory=lambda: {"admin": {"default", "team"}, "near": {"default"}})
    asked: list[str] = field(default_factory=list)
    trouble: SandpoolError | None = None

    async def caller(self, token: str) -> Caller | None:
        self.asked.append(f"who {token}")
        if self.trouble is not None:
            raise self.trouble
        name = self.tokens.get(token)
        return None if name is None else Caller(name)

    async def may_use(self, caller: Caller, namespace: str) -> bool:
        self.asked.append(f"may {caller.name} {namespace}")
        return namespace in self.rights.get(caller.name, set())


@dataclass
class Doors:
    """A Reach: ports where somebody listens, and what was connected to."""

    listening: set[int] = field(default_factory=set)
    opened: list[str] = field(default_factory=list)

    async def daemon(self, target: Target) -> socket.socket:
        self.opened.append("boxd")
        return socket.socket()

    async def port(self, target: Target, port: int) -> socket.socket:
        if port not in self.listening:
            raise NoAnswer(f"nobody listens on {port}")
        self.opened.append(str(port))
        return socket.socket()


@dataclass
class Notebook:
    entries: list[Entry] = field(default_factory=list)

    def note(self, entry: Entry) -> None:
        self.entries.append(entry)


class GateParts:
    def __init__(
        self,
        *sandboxes: Sandbox,
        options: GateOptions = GateOptions(),
        patience: float = 0.0,
        clock: Clock | None = None,
        activity: Activity | None = None,
        keys: tuple[bytes, ...] = (KEY,),
    ) -> None:
        self.clock = clock or ManualClock()
        self.cache: Cache[Sandbox] = Cache(SANDBOXES)
        self.cache.replace(sandboxes or (a_sandbox(),), max(s.metadata.revision for s in (sandboxes or (a_sandbox(),))))
        self.register = Register()
        self.doors = Doors()
        self.signer = Signer(keys)
        self.audit = Notebook()
        self.registry = CollectorRegistry()
        directory = Directory(self.cache, self.clock, patience)
        self.gate = RouterGate(
            directory=directory,
            authenticator=RequestAuthenticator(AuthorityCache(self.register, self.clock), self.signer, self.clock),
            reach=self.doors,
            signer=self.signer,
            clock=self.clock,
            request_log=RequestLog(RouterMetrics(self.registry), directory.holds, self.clock, activity, self.audit),
            options=options,
        )

    def becomes(self, sandbox: Sandbox) -> None:
        self.cache.apply(Event(EventType.MODIFIED, sandbox, sandbox.metadata.revision))

    async def ask(
        self,
        path: str = "/execute",
        headers: dict[str, str] | None = None,
        *,
        method: str = "POST",
        body: bytes = b"",
        peer: Peer = Peer("127.0.0.1"),
        token: str | None = "admin-token",
        sandbox: str | None = "box",
    ) -> Admitted | Answer:
        given = {"host": "127.0.0.1:7000"}
        if token is not None:
            given["authorization"] = f"Bearer {token}"
        if sandbox is not None:
            given["x-sandbox-id"] = sandbox
        given.update((name.lower(), value) for name, value in (headers or {}).items())
        return await self.gate.admit(a_request(path, given, method), peer, reading(body))


def a_request(path: str, headers: dict[str, str], method: str = "GET") -> Request:
    pairs = tuple((name.encode(), value.encode("latin-1")) for name, value in headers.items())
    return Request(method.encode(), path.encode("latin-1"), pairs, "r-1")


def reading(body: bytes) -> Callable[[int], Awaitable[bytes]]:
    async def read(most: int) -> bytes:
        return body[:most]

    return read


def refused(decided: Admitted | Answer) -> Answer:
    assert isinstance(decided, Answer), decided
    return decided


def admitted(decided: Admitted | Answer) -> Admitted:
    assert isinstance(decided, Admitted), decided
    return decided
