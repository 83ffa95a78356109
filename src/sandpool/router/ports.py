"""What the router asks of its surroundings. On one machine it is the cluster in the same process, elsewhere an API server."""

from __future__ import annotations

import socket
from dataclasses import dataclass
from typing import Protocol

from sandpool.base.errors import SandpoolError
from sandpool.base.shares import OPERATOR
from sandpool.model.metadata import Uid

_MASTERS = "system:masters"
_ACCOUNT = "system:serviceaccount:"


@dataclass(frozen=True, slots=True)
class Caller:
    """Who asks, proved."""

    name: str
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: tuple[
        tuple[str, tuple[str, ...]], ...
    ] = ()  # what else the API server knows and its authorizers may ask for

    @property
    def tenant(self) -> str:
        """On whose account they use the router: a service account's namespace, an administrator's own, else theirs."""
        if _MASTERS in self.groups:
            return OPERATOR
        if self.name.startswith(_ACCOUNT):
            return self.name.removeprefix(_ACCOUNT).partition(":")[0]
        return self.name


@dataclass(frozen=True, slots=True)
class Target:
    """A sandbox that can be reached now. `pod` is the name of its pod, `address` its first IP."""

    namespace: str
    name: str
    uid: Uid
    pod: str
    address: str


class Authority(Protocol):
    """Knows callers by the tokens of the API server. Raises SandpoolError when it cannot tell at the moment."""

    async def caller(self, token: str) -> Caller | None:
        """None: nobody."""
        ...

    async def may_use(self, caller: Caller, namespace: str) -> bool:
        """Whether the caller may use the sandboxes of a namespace: run programs in them, and reach their ports."""
        ...


class NoAnswer(SandpoolError):
    """Nobody listens there, or the sandbox has just gone: nothing was sent."""


class Reach(Protocol):
    """Connections into sandboxes: connected, non-blocking, the caller's. Raises NoAnswer."""

    async def daemon(self, target: Target) -> socket.socket:
        """To boxd."""
        ...

    async def port(self, target: Target, port: int) -> socket.socket:
        """To a TCP port."""
        ...
