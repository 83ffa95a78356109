"""Keeps the Node object and its Lease up to date.

Level-triggered: each heartbeat corrects what is missing or wrong. A failed heartbeat is logged, and the next one makes up for it.
"""

from __future__ import annotations

import asyncio
import platform
from collections.abc import Callable
from datetime import datetime
from typing import Any, Protocol

from sandpool.base.clock import Clock
from sandpool.kube.api import Api
from sandpool.kube.errors import AlreadyExists, ApiError, NotFound, Unreachable
from sandpool.loop.cache import Cache
from sandpool.model import times
from sandpool.model.binding import NODE_LEASES, TAKES_PODS
from sandpool.model.kinds import LEASES, NODES
from sandpool.model.metadata import Key, Uid
from sandpool.model.patches import merge_patch
from sandpool.model.pod import Node
from sandpool.node.backend import Probe
from sandpool.node.kubelet import machine
from sandpool.node.kubelet.options import KubeletOptions
from sandpool.node.kubelet.placement import DISK_PRESSURE
from sandpool.node.kubelet.runtimes import Offers, RuntimeClasses, why_not
from sandpool.telemetry.log import logger

log = logger(__name__)

LEASE_NAMESPACE = NODE_LEASES


def node_labels(options: KubeletOptions) -> dict[str, str]:
    return {
        "kubernetes.io/hostname": options.node,
        "kubernetes.io/os": machine.system(),
        "kubernetes.io/arch": machine.architecture(),
        **options.labels,
    }


def node_annotations(options: KubeletOptions) -> dict[str, str]:
    return {TAKES_PODS: "true"} if options.places else {}


def _annotations_patch(options: KubeletOptions) -> dict[str, str | None]:
    """Removes annotations that do not apply any more: an earlier process may have set them."""
    return {TAKES_PODS: None, **node_annotations(options)}


def node_body(
    options: KubeletOptions, runtime: str, offers: Offers, now: datetime, pressure: str | None = None
) -> dict[str, Any]:
    return {
        "metadata": {"name": options.node, "labels": node_labels(options), "annotations": node_annotations(options)},
        "status": node_status(options, runtime, offers, now, pressure),
    }


def node_status(
    options: KubeletOptions, runtime: str, offers: Offers, now: datetime, pressure: str | None = None
) -> dict[str, Any]:
    """The status of the Node. `pressure` says why no pod is started at the moment; None if the disk is not watched."""
    disk = [] if pressure is None else [_disk(pressure, now)]
    return {
        "capacity": dict(options.capacity),
        "allocatable": dict(options.capacity),
        "conditions": [_ready(now), *disk, *(_offer(name, probe, now) for name, probe in sorted(offers.items()))],
        "addresses": [
            {"type": "InternalIP", "address": options.address},
            {"type": "Hostname", "address": options.node},
        ],
        "runtimeHandlers": [{"name": name} for name, probe in sorted(offers.items()) if probe.available],
        "nodeInfo": {
            "machineID": "",
            "systemUUID": "",
            "bootID": machine.boot_id(),
            "kernelVersion": platform.release(),
            "osImage": machine.system_name(),
            "containerRuntimeVersion": runtime,
            "kubeletVersion": options.version,
            "kubeProxyVersion": "",
            "operatingSystem": machine.system(),
            "architecture": machine.architecture(),
        },
    }


def _ready(now: datetime) -> dict[str, Any]:
    return _condition("Ready", True, "KubeletReady", "the kubelet runs pods", now)


def _offer(name: str, probe: Probe, now: datetime) -> dict[str, Any]:
    """The condition that says whether a runtime works here, such as RuntimeGvisor."""
    if probe.available:
        what = ", ".join(sorted(probe.enforced)) or "nothing"
        return _condition(f"Runtime{name.capitalize()}", True, "Works", f"it was tried; enforced: {what}", now)
    return _condition(f"Runtime{name.capitalize()}", False, probe.reason or "Unavailable", why_not(name, probe), now)


def _condition(type_: str, holds: bool, reason: str, message: str, now: datetime) -> dict[str, Any]:
    at = times.seconds(now)
    return {
        "type": type_,
        "status": "True" if holds else "False",
        "reason": reason,
        "message": message,
        "lastHeartbeatTime": at,
        "lastTransitionTime": at,
    }


def _disk(pressure: str, now: datetime) -> dict[str, Any]:
    if pressure:
        return _condition(DISK_PRESSURE, True, "KubeletHasDiskPressure", pressure, now)
    return _condition(DISK_PRESSURE, False, "KubeletHasNoDiskPressure", "kubelet has no disk pressure", now)


class DiskWatch(Protocol):
    """Reports disk pressure."""

    @property
    def pressure(self) -> str:
        """Why no pod is started at the moment; empty while there is enough space."""
        ...

    async def level_changed(self) -> None:
        """Waits until the pressure changes."""
        ...


class Heartbeat:
    def __init__(
        self,
        api: Api,
        nodes: Cache[Node],
        clock: Clock,
        options: KubeletOptions,
        runtime: Callable[[], str],
        runtimes: RuntimeClasses,
        disk: DiskWatch | None = None,
    ) -> None:
        self._api = api
        self._nodes = nodes
        self._clock = clock
        self._options = options
        self._runtime = runtime
        self._runtimes = runtimes
        self._disk = disk
        self._pressed = False  # whether we have published pressure
        self._published = Uid("")  # the node object that has our status

    async def run(self) -> None:
        await self._nodes.synced.wait()
        await self._runtimes.tried.wait()
        while True:
            try:
                node = await self._ensure_node()
                await self._renew(node)
            except (ApiError, Unreachable) as error:
                log.warning("node not renewed", node=self._options.node, error=f"{type(error).__name__}: {error}")
            await self._rest()

    async def _rest(self) -> None:
        """Sleeps until the next heartbeat, or until disk pressure changes."""
        if self._disk is None:
            await self._clock.sleep(self._options.pace.renew)
            return
        rest = [
            asyncio.ensure_future(self._clock.sleep(self._options.pace.renew)),
            asyncio.ensure_future(self._disk.level_changed()),
        ]
        try:
            await asyncio.wait(rest, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in rest:
                each.cancel()
            await asyncio.gather(*rest, return_exceptions=True)

    @property
    def _pressure(self) -> str | None:
        """The current disk pressure; None if the disk is not watched."""
        return None if self._disk is None else self._disk.pressure

    async def _ensure_node(self) -> Node:
        """Gets or creates the Node. Writes its status again if the object is not the one we last wrote to, or if the pressure has changed."""
        name = self._options.node
        node = self._nodes.get(Key("", name))
        if node is None:
            offers, now = self._runtimes.offers, self._clock.now()
            body = node_body(self._options, self._runtime(), offers, now, self._pressure)
            try:
                node = await self._api.create(NODES, body)
                self._published, self._pressed = node.metadata.uid, bool(self._pressure)
            except AlreadyExists:
                node = await self._api.get(NODES, name)
        if node.metadata.uid != self._published or self._pressed != bool(self._pressure):
            pressure = self._pressure
            status = node_status(self._options, self._runtime(), self._runtimes.offers, self._clock.now(), pressure)
            node = await self._api.patch_status(NODES, name, merge_patch({"status": status}))
            wanted = _annotations_patch(self._options)
            if any(node.metadata.annotations.get(key) != value for key, value in wanted.items()):
                node = await self._api.patch(NODES, name, merge_patch({"metadata": {"annotations": wanted}}))
            self._published, self._pressed = node.metadata.uid, bool(pressure)
        return node

    async def _renew(self, node: Node) -> None:
        name, now = self._options.node, times.micro(self._clock.now())
        try:
            await self._api.patch(LEASES, name, merge_patch({"spec": {"renewTime": now}}), LEASE_NAMESPACE)
        except NotFound:
            owner = {"apiVersion": "v1", "kind": "Node", "name": name, "uid": node.metadata.uid}
            spec = {
                "holderIdentity": name,
                "leaseDurationSeconds": round(self._options.pace.lease),
                "renewTime": now,
            }
            metadata = {"name": name, "ownerReferences": [owner]}
            await self._api.create(LEASES, {"metadata": metadata, "spec": spec}, LEASE_NAMESPACE)
