"""The ports of the router: what it needs from outside. Implemented by the cluster in the same process, or with an API server."""

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
    """An authenticated user."""

    name: str
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: tuple[tuple[str, tuple[str, ...]], ...] = ()  # further attributes for the authorizers of the API server

    @property
    def tenant(self) -> str:
        """The tenant that their requests are charged to: a service account's namespace, the administrators', or their own."""
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
    """Authenticates and authorizes with the API server. Raises SandpoolError if it cannot be reached."""

    async def caller(self, token: str) -> Caller | None:
        """The caller; None if the token is invalid."""
        ...

    async def may_use(self, caller: Caller, namespace: str) -> bool:
        """Whether the caller may use the sandboxes of a namespace: run programs in them, and reach their ports."""
        ...


class NoAnswer(SandpoolError):
    """The connection failed: nothing listens there, or the sandbox has just ended. Nothing was sent."""


class Reach(Protocol):
    """Connections into sandboxes: connected, non-blocking sockets that the caller owns. Raises NoAnswer."""

    async def daemon(self, target: Target) -> socket.socket:
        """To boxd."""
        ...

    async def port(self, target: Target, port: int) -> socket.socket:
        """To a TCP port."""
        ...
