"""What a router asks of a cluster in the same process: who a token belongs to, and connections into its pods."""

from __future__ import annotations

import socket
from collections.abc import Awaitable
from dataclasses import dataclass, field

from sandpool.base.clock import Clock
from sandpool.base.errors import NodeError
from sandpool.controlplane.apiserver.authenticate import Authenticator
from sandpool.controlplane.apiserver.authorise import Attributes, allowed
from sandpool.controlplane.apiserver.identity import ADMIN, User
from sandpool.kube.errors import Unauthorized
from sandpool.loop.cache import Cache
from sandpool.loop.rush import Rush
from sandpool.model.kinds import SANDBOXES
from sandpool.model.metadata import Key
from sandpool.node.backend import Backend
from sandpool.node.kubelet.pods import NodePod
from sandpool.router.callers import Callers, Memory
from sandpool.router.ports import Caller, NoAnswer, Target
from sandpool.router.prewarm import EarlyLines


@dataclass(frozen=True, slots=True)
class Known(Caller):
    """A caller with what the API server knows of them."""

    user: User = field(default=ADMIN, compare=False)


FORWARDED = Known("port-forward", groups=ADMIN.groups, user=ADMIN)
"""Whoever comes through a port-forward to the router's pod: the API server let only those through who may do everything there."""


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


def local_callers(authenticator: Authenticator, clock: Clock) -> Callers:
    """Nothing is remembered: asking costs little here, and a token ends with its account."""
    return Callers(LocalAuthority(authenticator), clock, Memory(yes=0.0, no=0.0))


class LocalReach:
    """`pods` is the kubelet's cache: what it does not show does not run here. `early` is to be run, and told of sandboxes."""

    def __init__(self, backend: Backend, pods: Cache[NodePod], clock: Clock, rush: Rush) -> None:
        self._backend = backend
        self._pods = pods
        self.early = EarlyLines(self._connect, clock, rush)

    async def daemon(self, target: Target) -> socket.socket:
        return await self.early.take(target) or await self._connect(target)

    async def _connect(self, target: Target) -> socket.socket:
        pod = self._pod(target)
        return await _tried(target, self._backend.connect(pod.metadata.uid, pod.spec.containers[0].name))

    async def port(self, target: Target, port: int) -> socket.socket:
        return await _tried(target, self._backend.dial(self._pod(target).metadata.uid, port))

    def _pod(self, target: Target) -> NodePod:
        """The pod of this very sandbox, not another one of its name."""
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
