"""The router of a cluster on this machine, in the same process: it sees what the controllers see, and reaches pods by the kubelet.

Plain HTTP, on loopback unless asked otherwise. Port-forwards to the pod that stands for it arrive as connected sockets.
"""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from sandpool.app.local_control import LocalControl
from sandpool.app.local_reach import FORWARDED, LocalReach, local_callers
from sandpool.app.prewarm_hook import ForeseenApi
from sandpool.base.clock import Clock
from sandpool.base.errors import SandpoolError
from sandpool.base.open_files import allowed, requests_for, router_connections_for
from sandpool.controlplane.apiserver.authenticate import Authenticator
from sandpool.controlplane.router_pod import RouterPod
from sandpool.loop.lifetimes import beside
from sandpool.node.backend import Backend
from sandpool.router.activity import Activity
from sandpool.router.audit import AuditLog
from sandpool.router.gate import GateOptions, RouterGate
from sandpool.router.guard import loopback
from sandpool.router.lookup import Directory
from sandpool.router.options import RouterOptions
from sandpool.router.proof import Prover
from sandpool.router.seen import Seen
from sandpool.router.server import RouterServer
from sandpool.router.tokens import Signer
from sandpool.router.values import Peer
from sandpool.telemetry.metrics import Metrics
from sandpool.telemetry.router_metrics import RouterMetrics

PATIENCE = 0.5
"""Seconds that a request waits for news of a sandbox which the cache does not show as ready yet: the news is on its way."""


@dataclass(frozen=True, slots=True)
class RouterPlace:
    """Where it listens, and the file of its audit log."""

    host: str
    port: int
    audit: Path


@dataclass(frozen=True, slots=True)
class RouterGround:
    """What it stands on."""

    api: ForeseenApi
    control: LocalControl
    backend: Backend
    authenticator: Authenticator
    key: bytes  # of tokens for one sandbox
    clock: Clock
    metrics: Metrics


class LocalRouter:
    def __init__(self, place: RouterPlace, ground: RouterGround) -> None:
        self._place = place
        self._ground = ground
        self._server: RouterServer | None = None
        self.pod = RouterPod(ground.api, ground.clock)

    def take(self, connection: socket.socket) -> None:
        """A port-forward that the API server has let through."""
        if self._server is None:
            raise SandpoolError("the router does not run yet, or not any more")
        self._server.take(connection, Peer("port-forward", proved=FORWARDED))

    @asynccontextmanager
    async def running(self) -> AsyncIterator[str]:
        """Its address. OSError if that cannot be had."""
        ground, place = self._ground, self._place
        async with AsyncExitStack() as stack:
            audit = AuditLog(place.audit, ground.clock)
            stack.callback(audit.close)
            activity = Activity(ground.api, ground.clock)
            reach = LocalReach(ground.backend, ground.control.pods, ground.clock, ground.control.rush)
            sandboxes = ground.control.sandboxes
            sandboxes.subscribe(reach.early.changed)
            ground.api.foresee = lambda key: reach.early.foresee(sandboxes.get(key))
            ground.control.outright.foresee = ground.api.foresee
            await stack.enter_async_context(beside(activity=activity.run(), early=reach.early.run()))
            gate = _gate(place, ground, reach, activity, audit)
            ground.metrics.shares["router_requests"] = gate.shares
            server = RouterServer(gate, RouterOptions(connections=router_connections_for(allowed())), ground.clock)
            stack.push_async_callback(server.stop)
            _, port = await server.listen(place.host, place.port)
            self._server = server
            await stack.enter_async_context(self.pod.shown())
            yield f"http://{f'[{place.host}]' if ':' in place.host else place.host}:{port}"
            self._server = None


def _gate(
    place: RouterPlace, ground: RouterGround, reach: LocalReach, activity: Activity, audit: AuditLog
) -> RouterGate:
    clock, signer = ground.clock, Signer([ground.key])
    directory = Directory(ground.control.sandboxes, clock, PATIENCE)
    return RouterGate(
        directory=directory,
        prover=Prover(local_callers(ground.authenticator, clock), signer, clock),
        reach=reach,
        signer=signer,
        clock=clock,
        seen=Seen(RouterMetrics(ground.metrics.registry), directory.holds, clock, activity, audit),
        options=GateOptions(loopback=loopback(place.host), requests=requests_for(allowed())),
    )
