"""A Service and a pod that stand for the router inside this process, where clients of a cluster look for one.

No sandbox runs the pod. It is placed on a node that no kubelet here looks after, so that none of the cluster's machinery has to
know about it; its annotation says so to people and tools, and nothing here believes that annotation. It is made anew at every
start, shown as Running while the router is there, and put right when somebody changes or deletes it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager, suppress
from typing import Any, Final

from sandpool.base.clock import Clock
from sandpool.kube.api import Api, EventType, Preconditions
from sandpool.kube.errors import AlreadyExists, ApiError, NotFound
from sandpool.loop.lifetimes import beside
from sandpool.model import times
from sandpool.model.kinds import NAMESPACES, PODS, SERVICES, raw
from sandpool.model.metadata import Uid
from sandpool.model.patches import json_patch
from sandpool.model.raw import RawObject
from sandpool.model.resource import Resource
from sandpool.telemetry.log import logger
from sandpool.version import __version__
from sandpool.wire.router_service import NAMESPACE, PORT, SERVICE

log = logger(__name__)

POD: Final = "sandbox-router"
CONTAINER: Final = "router"
NODE: Final = "sandpool"
"""The process itself. There is no such Node, and a kubelet leaves pods of other nodes alone."""
MIRROR: Final = "kubernetes.io/config.mirror"
PAUSE: Final = 1.0
"""Seconds without the pod before it is made anew, and between attempts."""
REMEMBERED: Final = 64
"""Pods of this process that were replaced, and to which a client may still forward."""
_LABELS: Final = {"app": "sandbox-router"}
_PODS: Final[Resource[RawObject]] = raw(PODS)


class RouterPod:
    def __init__(self, api: Api, clock: Clock) -> None:
        self._api = api
        self._clock = clock
        self._shown: RawObject | None = None
        self._uids: deque[Uid] = deque(maxlen=REMEMBERED)

    def stands_for(self, uid: Uid) -> bool:
        """Whether a pod is the router's: one that this process made, by its uid and by nothing that others could write."""
        return uid in self._uids

    @asynccontextmanager
    async def shown(self) -> AsyncIterator[None]:
        """The pod is there while the body runs: the router must answer by then."""
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
            await self._clock.sleep(PAUSE)  # who deletes it waits until it is gone, and may never see that otherwise
            await self._settle()

    async def _tried(self, work: Awaitable[None]) -> bool:
        """Nothing of this may end the cluster: its namespace may just be going, say."""
        try:
            await work
        except ApiError as error:
            log.warning("the router's pod is not as it should be", pod=f"{NAMESPACE}/{POD}", error=str(error))
            return False
        return True

    async def _changed(self) -> None:
        """Returns when the pod is not as it was shown, or when a watch has lasted long enough."""
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
    """Nobody stands behind it: an earlier process could not tidy up, or this one ends. If it cannot be removed now, the next
    start does it."""
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
