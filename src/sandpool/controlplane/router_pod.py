"""The Service and the pod under which clients of a cluster look for the router, and streams to that pod. The router itself runs in this process.

Nothing runs in the pod. It is bound to a node that no kubelet manages, so no other component needs to know about it. An annotation tells
people and tools; the code here does not rely on it. The pod is created again at every start, is Running while the router runs, and is
restored when somebody changes or deletes it.

A port-forward to the pod reaches the router in this process; every other stream is refused. Existing clients send no token over a
port-forward, so the router trusts these connections and only the admin may open them. All others use the router's own address and send a token.
"""

from __future__ import annotations

import socket
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any, Final

import msgspec

from sandpool.base.clock import Clock
from sandpool.base.errors import NodeError
from sandpool.controlplane.apiserver.call import Call
from sandpool.controlplane.apiserver.handlers.runtime import Runtime
from sandpool.controlplane.apiserver.response import Response
from sandpool.kube.api import Api, EventType, Preconditions
from sandpool.kube.errors import AlreadyExists, ApiError, BadRequest, Forbidden, NotFound
from sandpool.loop.lifetimes import beside
from sandpool.model import times
from sandpool.model.kinds import NAMESPACES, PODS, SERVICES, raw
from sandpool.model.metadata import Metadata, Model, RawObject, Uid
from sandpool.model.patches import json_patch
from sandpool.model.pod_streams import Command, Exit, StreamingRuntime, Streams
from sandpool.model.resource import Resource
from sandpool.telemetry.log import logger
from sandpool.version import __version__
from sandpool.wire.router_service import NAMESPACE, PORT, SERVICE

log = logger(__name__)

POD: Final = "sandbox-router"
CONTAINER: Final = "router"
NODE: Final = "sandpool"
"""The pod's nodeName. No Node has this name, and the kubelet ignores pods of other nodes."""
MIRROR: Final = "kubernetes.io/config.mirror"
PAUSE: Final = 1.0
"""Seconds between deleting the pod and creating it again, and between attempts."""
REMEMBERED: Final = 64
"""How many uids of earlier router pods are kept: clients may still forward to a pod that was replaced."""
_LABELS: Final = {"app": "sandbox-router"}
_PODS: Final[Resource[RawObject]] = raw(PODS)
Take = Callable[[socket.socket], object]
"""Takes over one end of a connected socket pair. If it raises, `dial` reports that the connection was refused."""
_STANDS_FOR: Final = "it stands for the router inside sandpool, and nothing runs in it"


class RouterPod:
    """Keeps the router's Service and pod in the cluster while the router runs."""

    def __init__(self, api: Api, clock: Clock) -> None:
        self._api = api
        self._clock = clock
        self._shown: RawObject | None = None
        self._uids: deque[Uid] = deque(maxlen=REMEMBERED)

    def stands_for(self, uid: Uid) -> bool:
        """Whether this is the router's pod. Only uids of pods that this process created count: everything else in a pod can be forged."""
        return uid in self._uids

    @asynccontextmanager
    async def shown(self) -> AsyncIterator[None]:
        """Shows the pod while the body runs. Enter it only when the router already answers."""
        try:
            await self._tried(self._settle())
            async with beside(router_pod=self._keep()):
                yield
        finally:
            await remove_router_pod(self._api)

    async def _keep(self) -> None:
        while True:
            if not (await self._tried(self._changed()) and await self._tried(self._repair())):
                await self._clock.sleep(PAUSE)

    async def _repair(self) -> None:
        found = await self._read()
        if found is None or found != self._shown:
            await _remove(self._api)
            await self._clock.sleep(PAUSE)  # a client that deletes the pod and polls until it is gone must see that
            await self._settle()

    async def _tried(self, work: Awaitable[None]) -> bool:
        """Logs API errors and returns False: they must not end the cluster. The pod's namespace may be terminating, for example."""
        try:
            await work
        except ApiError as error:
            log.warning("the router's pod could not be updated", pod=f"{NAMESPACE}/{POD}", error=str(error))
            return False
        return True

    async def _changed(self) -> None:
        """Returns when the pod differs from what was created, is missing, or when the watch ends."""
        fields = f"metadata.name={POD}"
        async with self._api.watch(_PODS, NAMESPACE, fields=fields, initial=True) as events:
            async for event in events:
                if event.object is not None and (event.type is EventType.DELETED or event.object != self._shown):
                    return
                if event.initial_done and await self._read() is None:
                    return

    async def _settle(self) -> None:
        found = await self._read()
        if found is not None and found == self._shown:
            return
        await _remove(self._api)
        await self._around()
        made = await self._api.create(_PODS, pod_body(), NAMESPACE)
        self._uids.append(made.metadata.uid)
        status = status_body(times.seconds(self._clock.now()))
        patch = json_patch(
            [
                {"op": "test", "path": "/metadata/uid", "value": made.metadata.uid},
                {"op": "add", "path": "/status", "value": status},
            ]
        )
        self._shown = await self._api.patch_status(_PODS, POD, patch, NAMESPACE)

    async def _around(self) -> None:
        with suppress(AlreadyExists):
            await self._api.create(NAMESPACES, {"metadata": {"name": NAMESPACE}})
        with suppress(AlreadyExists):
            await self._api.create(SERVICES, service_body(), NAMESPACE)

    async def _read(self) -> RawObject | None:
        try:
            return await self._api.get(_PODS, POD, NAMESPACE)
        except NotFound:
            return None


async def remove_router_pod(api: Api) -> None:
    """Removes a pod without a router behind it: one that an earlier process left, or ours when this process ends. If that fails, the
    next start removes it."""
    try:
        await _remove(api)
    except ApiError as error:
        log.warning("the router's pod could not be removed", pod=f"{NAMESPACE}/{POD}", error=str(error))


async def _remove(api: Api) -> None:
    with suppress(NotFound):
        found = await api.get(_PODS, POD, NAMESPACE)
        await api.delete(_PODS, POD, NAMESPACE, preconditions=Preconditions(uid=found.metadata.uid), grace=0)


def service_body() -> dict[str, Any]:
    port = {"name": "http", "port": PORT, "targetPort": PORT, "protocol": "TCP"}
    return {"metadata": {"name": SERVICE, "labels": _LABELS}, "spec": {"selector": _LABELS, "ports": [port]}}


def pod_body() -> dict[str, Any]:
    container = {
        "name": CONTAINER,
        "image": f"sandpool:{__version__}",
        "ports": [{"name": "http", "containerPort": PORT, "protocol": "TCP"}],
    }
    return {
        "metadata": {"name": POD, "labels": _LABELS, "annotations": {MIRROR: "sandpool"}},
        "spec": {"nodeName": NODE, "automountServiceAccountToken": False, "containers": [container]},
    }


def status_body(since: str) -> dict[str, Any]:
    conditions = [
        {"type": kind, "status": "True", "lastTransitionTime": since}
        for kind in ("PodScheduled", "Initialized", "ContainersReady", "Ready")
    ]
    container = {
        "name": CONTAINER,
        "image": f"sandpool:{__version__}",
        "imageID": "",
        "ready": True,
        "started": True,
        "restartCount": 0,
        "state": {"running": {"startedAt": since}},
    }
    return {
        "phase": "Running",
        "message": "This pod stands for the router inside sandpool; no sandbox runs it.",
        "startTime": since,
        "conditions": conditions,
        "containerStatuses": [container],
    }


class _Named(Model, frozen=True):
    metadata: Metadata = Metadata()


_DECODER: Final = msgspec.json.Decoder(_Named)


class RouterStreams:
    """Authorizes streams to the router's pod, then passes every stream on to `streams`."""

    def __init__(self, router: RouterPod, streams: Runtime) -> None:
        self._router = router
        self._streams = streams

    async def serve(self, call: Call, pod: bytes) -> Response:
        info = call.info
        if self._router.stands_for(_DECODER.decode(pod).metadata.uid):
            if info.subresource == "log":
                raise BadRequest(
                    f'pods "{info.name}" has no log: {_STANDS_FOR}. Read what `sandpool up` says, or sandpool.log in the data '
                    "directory if it is detached"
                )
            if info.subresource != "portforward":
                raise BadRequest(f'pods "{info.name}" cannot serve "{info.subresource}": {_STANDS_FOR}')
            if not call.user.admin:
                raise Forbidden(
                    f'pods "{info.name}" is forbidden: User "{call.user.name}" cannot forward to the router, which lets '
                    "everybody who comes this way use all sandboxes; send your token to its own address instead "
                    "(`router` in `sandpool status -o json`)",
                    details={"name": info.name, "kind": "pods"},
                )
        return await self._streams.serve(call, pod)


class RouterNode:
    """A StreamingRuntime that connects port-forwards to the router's pod to the router; everything else goes to `inner`."""

    def __init__(self, inner: StreamingRuntime, router: RouterPod, take: Take) -> None:
        self._inner = inner
        self._router = router
        self._take = take

    async def dial(self, uid: Uid, port: int) -> socket.socket:
        if not self._router.stands_for(uid):
            return await self._inner.dial(uid, port)
        if port != PORT:
            raise NodeError("ConnectionRefused", f"the router is reached at port {PORT} only, not at {port}")
        ours, theirs = socket.socketpair()
        try:
            ours.setblocking(False)
            theirs.setblocking(False)
            self._take(theirs)
        except BaseException as error:
            ours.close()
            theirs.close()
            if isinstance(error, Exception):
                raise NodeError("ConnectionRefused", f"the router takes no connection: {error}") from error
            raise
        return ours

    async def exec(self, uid: Uid, container: str, command: Command, streams: Streams) -> Exit:
        self._refuse(uid)
        return await self._inner.exec(uid, container, command, streams)

    async def attach(self, uid: Uid, container: str, streams: Streams) -> Exit:
        self._refuse(uid)
        return await self._inner.attach(uid, container, streams)

    def logs(self, uid: Uid, container: str, **options: Any) -> AsyncIterator[bytes]:
        self._refuse(uid)
        return self._inner.logs(uid, container, **options)

    def _refuse(self, uid: Uid) -> None:
        if self._router.stands_for(uid):
            raise NodeError("BadRequest", f"the router's pod cannot do that: {_STANDS_FOR}")
