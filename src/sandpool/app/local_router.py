"""The router of a local cluster, in the same process: it shares the controllers' caches, and reaches pods through the kubelet.

It serves plain HTTP, on loopback by default. Port-forwards to the router's pod (controlplane/router_pod.py) arrive as connected sockets.
"""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator, Awaitable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from sandpool.app.local_control import LocalControl
from sandpool.base.clock import Clock
from sandpool.base.errors import NodeError, SandpoolError
from sandpool.base.open_files import allowed as allowed_files
from sandpool.base.open_files import requests_for, router_connections_for
from sandpool.controlplane.api import LocalApi
from sandpool.controlplane.apiserver.auth import ADMIN, Attributes, Authenticator, User, allowed
from sandpool.controlplane.router_pod import RouterPod
from sandpool.kube.errors import Unauthorized
from sandpool.kube.priority import UrgentWork
from sandpool.loop.cache import Cache
from sandpool.loop.lifetimes import beside
from sandpool.model.kinds import SANDBOXES
from sandpool.model.metadata import Key
from sandpool.node.backend import Backend
from sandpool.node.kubelet.pods import NodePod
from sandpool.router.activity import Activity
from sandpool.router.audit import AuditLog
from sandpool.router.authentication import AuthorityCache, CacheOptions, RequestAuthenticator
from sandpool.router.directory import Directory
from sandpool.router.gate import GateOptions, RouterGate
from sandpool.router.guard import loopback
from sandpool.router.options import RouterOptions
from sandpool.router.ports import Caller, NoAnswer, Target
from sandpool.router.prewarm import Prewarmer
from sandpool.router.request_log import RequestLog
from sandpool.router.server import RouterServer
from sandpool.router.tokens import Signer
from sandpool.router.values import Peer
from sandpool.telemetry.metrics import Metrics
from sandpool.telemetry.router_metrics import RouterMetrics


@dataclass(frozen=True, slots=True)
class Known(Caller):
    """A caller, with the user that the API server authenticated."""

    user: User = field(default=ADMIN, compare=False)


FORWARDED = Known("port-forward", groups=ADMIN.groups, user=ADMIN)
"""The caller of port-forwards to the router's pod: the API server admits only users that may do everything there."""


class LocalAuthority:
    def __init__(self, authenticator: Authenticator) -> None:
        self._authenticator = authenticator

    async def caller(self, token: str) -> Caller | None:
        try:
            user = self._authenticator.authenticate(b"Bearer " + token.encode("latin-1", "replace"))
        except Unauthorized:
            return None
        return Known(user.name, user.uid, user.groups, user=user)

    async def may_use(self, caller: Caller, namespace: str) -> bool:
        wanted = Attributes(
            "create", group=SANDBOXES.group, resource=SANDBOXES.plural, subresource="connect", namespace=namespace
        )
        return isinstance(caller, Known) and allowed(caller.user, wanted)


def local_callers(authenticator: Authenticator, clock: Clock) -> AuthorityCache:
    """Authenticates each request anew: that is cheap here, and a token becomes invalid as soon as its account is deleted."""
    return AuthorityCache(LocalAuthority(authenticator), clock, CacheOptions(yes=0.0, no=0.0))


class LocalReach:
    """Connects to pods through the node's backend. `pods` is the kubelet's cache. The caller must run `prewarmer` and subscribe it to the
    sandbox cache."""

    def __init__(self, backend: Backend, pods: Cache[NodePod], clock: Clock, urgent: UrgentWork) -> None:
        self._backend = backend
        self._pods = pods
        self.prewarmer = Prewarmer(self._connect, clock, urgent)

    async def daemon(self, target: Target) -> socket.socket:
        return await self.prewarmer.take(target) or await self._connect(target)

    async def _connect(self, target: Target) -> socket.socket:
        pod = self._pod(target)
        return await _tried(target, self._backend.connect(pod.metadata.uid, pod.spec.containers[0].name))

    async def port(self, target: Target, port: int) -> socket.socket:
        return await _tried(target, self._backend.dial(self._pod(target).metadata.uid, port))

    def _pod(self, target: Target) -> NodePod:
        """The sandbox's own pod. Another pod with the same name does not count."""
        pod = self._pods.get(Key(target.namespace, target.pod))
        owner = None if pod is None else pod.metadata.controller
        if pod is None or owner is None or owner.uid != target.uid:
            raise NoAnswer(f"pod {target.pod!r} of sandbox {target.name!r} is not there (any more)")
        return pod


async def _tried(target: Target, attempt: Awaitable[socket.socket]) -> socket.socket:
    try:
        return await attempt
    except NodeError as error:
        raise NoAnswer(f"sandbox {target.name!r}: {error.message}") from error


PATIENCE = 0.5
"""Seconds that a request waits for a sandbox that is not ready in the cache: the watch event may be on its way."""


@dataclass(frozen=True, slots=True)
class RouterSettings:
    """The address of the router, and the file of its audit log."""

    host: str
    port: int
    audit: Path


@dataclass(frozen=True, slots=True)
class RouterDependencies:
    """What the router uses of the cluster."""

    api: LocalApi
    control: LocalControl
    backend: Backend
    authenticator: Authenticator
    key: bytes  # signs tokens for single sandboxes
    clock: Clock
    metrics: Metrics


class LocalRouter:
    def __init__(self, settings: RouterSettings, dependencies: RouterDependencies) -> None:
        self._settings = settings
        self._dependencies = dependencies
        self._server: RouterServer | None = None
        self.pod = RouterPod(dependencies.api, dependencies.clock)

    def take(self, connection: socket.socket) -> None:
        """Serves a port-forward that the API server has authorized."""
        if self._server is None:
            raise SandpoolError("the router does not run yet, or not any more")
        self._server.take(connection, Peer("port-forward", proved=FORWARDED))

    @asynccontextmanager
    async def running(self) -> AsyncIterator[str]:
        """Runs the router; yields its base URL. OSError if it cannot listen."""
        dependencies, settings = self._dependencies, self._settings
        async with AsyncExitStack() as stack:
            audit = AuditLog(settings.audit, dependencies.clock)
            stack.callback(audit.close)
            activity = Activity(dependencies.api, dependencies.clock)
            reach = LocalReach(
                dependencies.backend, dependencies.control.pods, dependencies.clock, dependencies.control.urgent
            )
            sandboxes = dependencies.control.sandboxes
            sandboxes.subscribe(reach.prewarmer.changed)
            dependencies.control.transfers.subscribe(lambda key: reach.prewarmer.prewarm(sandboxes.get(key)))
            await stack.enter_async_context(beside(activity=activity.run(), prewarm=reach.prewarmer.run()))
            gate = _gate(settings, dependencies, reach, activity, audit)
            dependencies.metrics.shares["router_requests"] = gate.shares
            server = RouterServer(
                gate, RouterOptions(connections=router_connections_for(allowed_files())), dependencies.clock
            )
            stack.push_async_callback(server.stop)
            _, port = await server.listen(settings.host, settings.port)
            self._server = server
            await stack.enter_async_context(self.pod.shown())
            yield f"http://{f'[{settings.host}]' if ':' in settings.host else settings.host}:{port}"
            self._server = None


def _gate(
    settings: RouterSettings, dependencies: RouterDependencies, reach: LocalReach, activity: Activity, audit: AuditLog
) -> RouterGate:
    clock, signer = dependencies.clock, Signer([dependencies.key])
    directory = Directory(dependencies.control.sandboxes, clock, PATIENCE)
    return RouterGate(
        directory=directory,
        authenticator=RequestAuthenticator(local_callers(dependencies.authenticator, clock), signer, clock),
        reach=reach,
        signer=signer,
        clock=clock,
        request_log=RequestLog(RouterMetrics(dependencies.metrics.registry), directory.holds, clock, activity, audit),
        options=GateOptions(loopback=loopback(settings.host), requests=requests_for(allowed_files())),
    )
