"""The port to the node that runs pods, which serves logs, exec, attach and port-forward. Without a node the response is 501."""

from __future__ import annotations

from typing import Protocol

from sandpool.controlplane.apiserver.call import Call
from sandpool.controlplane.apiserver.response import Response
from sandpool.kube.errors import ApiError


class Runtime(Protocol):
    """Serves the streaming subresources of pods."""

    async def serve(self, call: Call, pod: bytes) -> Response:
        """Serves `call.info.subresource` of a pod. `pod` is the stored object."""
        ...


class NotServed(ApiError):
    """501: this server has no node, or no controllers, to serve the request."""

    status, reason = 501, "NotImplemented"


class NoRuntime:
    """Refuses every stream; `why` is the cause and the next step."""

    def __init__(self, why: str = "this server runs no pods, it only stores them") -> None:
        self._why = why

    async def serve(self, call: Call, pod: bytes) -> Response:
        info = call.info
        raise NotServed(
            f'pods "{info.name}" cannot serve "{info.subresource}": {self._why}',
            details={"name": info.name, "kind": "pods"},
        )
