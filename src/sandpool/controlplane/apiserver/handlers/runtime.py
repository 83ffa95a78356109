"""What only a node can do for a pod: logs, exec, attach, port-forward.

This is the one place where a part that runs pods plugs in; without one, the answer says so.
"""

from __future__ import annotations

from typing import Protocol

from sandpool.controlplane.apiserver.answer import Reply
from sandpool.controlplane.apiserver.call import Call
from sandpool.kube.errors import ApiError


class Runtime(Protocol):
    async def serve(self, call: Call, pod: bytes) -> Reply:
        """Serves `call.info.subresource` of a pod, which is as it is stored."""
        ...


class NotServed(ApiError):
    status, reason = 501, "NotImplemented"


class NoRuntime:
    """Nobody does any of that here; `why` says why, and what to do about it."""

    def __init__(self, why: str = "this server runs no pods, it only stores them") -> None:
        self._why = why

    async def serve(self, call: Call, pod: bytes) -> Reply:
        info = call.info
        raise NotServed(
            f'pods "{info.name}" cannot serve "{info.subresource}": {self._why}',
            details={"name": info.name, "kind": "pods"},
        )
