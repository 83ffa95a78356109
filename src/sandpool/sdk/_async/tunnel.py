"""Reaches the router through the API server: a port-forward to a pod of the router, over a WebSocket.

Channel 0 carries the bytes, channel 1 errors; each begins with the port number. A tunnel is one connection to the
router, and is used as a Transport is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, BinaryIO

from sandpool.kube.errors import ApiError, NotFound, Unreachable, Unreadable
from sandpool.sdk._async.cluster import Cluster
from sandpool.sdk._async.http import RefusedUpgrade
from sandpool.sdk._async.transport import CHUNK, STASH
from sandpool.sdk._async.websocket import WebSocket
from sandpool.sdk.api_paths import api_path, with_query
from sandpool.sdk.deadline import Deadline, left
from sandpool.sdk.errors import NotConfigured
from sandpool.wire.router_service import NAMESPACE, PORT, SERVICE

PROTOCOL = "v4.channel.k8s.io"
DATA, ERROR = 0, 1
PIECE = 1 << 16  # bytes of one message


class Tunnel:
    """A ByteStream."""

    def __init__(self, socket: WebSocket, pod: str) -> None:
        self._socket = socket
        self._pod = pod
        self._held = bytearray()
        self._greeted = {DATA: b"", ERROR: b""}  # bytes of the port number that arrived, per channel
        self._ended = False

    @property
    def arrived(self) -> bool:
        return bool(self._held) or self._ended

    def stale(self) -> bool:
        return self.arrived or self._socket.stale()

    async def read(self, limit: int, deadline: Deadline = None) -> bytes:
        while not self._held and not self._ended:
            self._take(await self._socket.receive(left(deadline)))
        data = bytes(self._held[:limit])
        del self._held[:limit]
        return data

    async def write(self, data: bytes | memoryview, deadline: Deadline = None, *, heed: bool = False) -> int:
        sent = 0
        while sent < len(data) and not (heed and self.arrived):
            piece = bytes(data[sent : sent + PIECE])
            await self._socket.send(bytes((DATA,)) + piece, left(deadline))
            sent += len(piece)
            if len(self._held) < STASH:  # then the other side has to wait, as on a plain connection
                for message in await self._socket.received():
                    self._take(message)
        return sent

    async def sendfile(self, file: BinaryIO, offset: int, count: int, deadline: Deadline = None) -> int:
        sent = 0
        file.seek(offset)
        while sent < count and not self.arrived:
            data = file.read(min(CHUNK, count - sent))
            if not data:
                raise ValueError("a file became shorter while it was sent")
            sent += await self.write(data, deadline, heed=True)
        return sent

    def close(self) -> None:
        self._socket.abort()

    def _take(self, message: bytes | None) -> None:
        if message is None:
            self._ended = True
            return
        channel, data = message[0] if message else -1, message[1:]
        if channel not in self._greeted:
            raise Unreadable(f"pod {self._pod}: the port-forward uses an unknown channel")
        missing = 2 - len(self._greeted[channel])
        self._greeted[channel] += data[:missing]
        data = data[missing:]
        if channel == DATA:
            self._held += data
        elif data:
            raise Unreachable(f"pod {self._pod}: {data.decode('utf-8', 'replace').strip()[:500]}")


async def open_tunnel(cluster: Cluster, deadline: Deadline) -> Tunnel:
    """A tunnel to the router of the cluster. NotConfigured if there is none, or if it may not be used."""
    try:
        service = await cluster.get(api_path("v1", "services", NAMESPACE, SERVICE))
        query = {"labelSelector": selector_of(service)}
        pods: list[dict[str, Any]] = (
            await cluster.list(api_path("v1", "pods", NAMESPACE), labels=query["labelSelector"])
        )["items"]
    except NotFound:
        raise _no_way(cluster, f"there is no service {SERVICE} in namespace {NAMESPACE}") from None
    except ApiError as error:
        raise _no_way(cluster, f"the API server refused to show its router ({error.message})") from None
    found = chosen_pod(service, pods)
    if found is None:
        raise _no_way(cluster, f"no pod of service {SERVICE} in namespace {NAMESPACE} is ready")
    pod, port = found
    path = with_query(api_path("v1", "pods", NAMESPACE, pod, "portforward"), {"ports": port})
    try:
        return Tunnel(await cluster.open_websocket(path, (PROTOCOL,), deadline), f"{NAMESPACE}/{pod}")
    except RefusedUpgrade as refused:
        raise _no_way(
            cluster, f"a port-forward to pod {NAMESPACE}/{pod} was refused ({refused.response.status})"
        ) from None


def _no_way(cluster: Cluster, why: str) -> NotConfigured:
    return NotConfigured(f"no way into the sandboxes of {cluster.resolved.source}: {why}; {cluster.resolved.no_router}")


Object = Mapping[str, Any]


def selector_of(service: Object) -> str:
    """As a label selector. A service without one selects nothing, not everything."""
    pairs = (service.get("spec") or {}).get("selector") or {"sandpool.dev/none": "none"}
    return ",".join(f"{key}={value}" for key, value in sorted(pairs.items()))


def chosen_pod(service: Object, pods: Iterable[Object]) -> tuple[str, int] | None:
    """A pod that serves, and the port there; None if none does."""
    ports = (service.get("spec") or {}).get("ports") or ()
    wanted = next((port for port in ports if port.get("port") == PORT), ports[0] if ports else {"port": PORT})
    target = wanted.get("targetPort") or wanted.get("port", PORT)
    for pod in pods:
        number = _number(pod, target)
        if _serves(pod) and number is not None:
            return str(pod["metadata"]["name"]), number
    return None


def _serves(pod: Object) -> bool:
    status = pod.get("status") or {}
    ready = any(c.get("type") == "Ready" and c.get("status") == "True" for c in status.get("conditions") or ())
    return status.get("phase") == "Running" and ready and not pod["metadata"].get("deletionTimestamp")


def _number(pod: Object, target: int | str) -> int | None:
    if isinstance(target, int):
        return target
    for container in (pod.get("spec") or {}).get("containers") or ():
        for port in container.get("ports") or ():
            if port.get("name") == target:
                return int(port["containerPort"])
    return None
