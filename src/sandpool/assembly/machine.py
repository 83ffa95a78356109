"""The node that a local cluster has: what really runs pods on this machine, with its images, volumes and network."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import random as dice
from typing import Literal

from sandpool.assembly.data_dir import installation_of
from sandpool.assembly.lifetimes import beside
from sandpool.kube.api import Api
from sandpool.kube.errors import SandpoolError
from sandpool.local.backends.base import Backend
from sandpool.local.backends.choice import ChosenBackend
from sandpool.local.backends.gvisor.runtime import GvisorRuntime
from sandpool.local.backends.hollow import HollowBackend
from sandpool.local.backends.namespaces.runtime import NamespacesRuntime
from sandpool.local.backends.namespaces.server import isolated
from sandpool.local.backends.pods.backend import PodsBackend
from sandpool.local.backends.process.runtime import ProcessRuntime
from sandpool.local.backends.runtime import Runtime
from sandpool.local.images.options import ImageOptions
from sandpool.local.images.store import ImageStore
from sandpool.local.kubelet.agent import Surroundings
from sandpool.local.network.local import LocalNetwork
from sandpool.local.network.policies import Policies
from sandpool.local.volumes.options import VolumeOptions
from sandpool.local.volumes.store import VolumeStore
from sandpool.loop.cache import Cache
from sandpool.loop.clock import Clock
from sandpool.loop.manager import Manager, Parts
from sandpool.loop.reflector import Reflector
from sandpool.model.core import NetworkPolicy
from sandpool.model.kinds import NETWORK_POLICIES, PODS
from sandpool.telemetry.metrics import Metrics

BackendName = Literal["namespaces", "gvisor", "process", "hollow", "none"]
"""What pods become by default. hollow: everything but a process. none: nothing, the API server only keeps objects."""

FORK_SERVER = isolated("from sandpool.assembly.fork_server import run; run()")
"""The process that forks sandboxes, with boxd on board."""


class BackendUnavailable(SandpoolError):
    """What was asked for does not work on this machine; there is never a weaker one in its place."""


@dataclass(frozen=True, slots=True)
class MachineOptions:
    folder: Path
    backend: BackendName = "namespaces"
    images: ImageOptions = field(default_factory=ImageOptions)
    volumes: VolumeOptions = field(default_factory=VolumeOptions)

    @property
    def installation(self) -> str:
        return installation_of(self.folder)


@dataclass(frozen=True, slots=True)
class Machine:
    """What a kubelet needs of it."""

    backend: Backend
    around: Surroundings
    real: bool  # whether there is something in a pod to reach


@asynccontextmanager
async def machine(options: MachineOptions, api: Api, clock: Clock, metrics: Metrics) -> AsyncIterator[Machine]:
    if options.backend == "hollow":
        yield Machine(HollowBackend(clock), Surroundings(), real=False)
        return
    async with AsyncExitStack() as stack:
        images = ImageStore(options.folder / "images", clock, options.images)
        await images.open()
        stack.push_async_callback(images.close)
        volumes = VolumeStore(options.folder / "volumes", options.volumes)
        stack.push_async_callback(volumes.close)
        await volumes.reap({pod.metadata.uid for pod in (await api.list(PODS)).items})
        policies = Policies()
        await stack.enter_async_context(_following(policies, api, clock, metrics, dice))
        network = LocalNetwork(policies, clock)
        stack.push_async_callback(network.close)
        backends = [
            PodsBackend(runtime, images, volumes, network, clock, options.folder / "pods" / runtime.name)
            for runtime in _runtimes(options)
        ]
        chosen = ChosenBackend(backends, options.backend)
        await _check(chosen, options.backend)
        yield Machine(chosen, Surroundings(offering=chosen.offers, folders=volumes), real=True)


def _runtimes(options: MachineOptions) -> list[Runtime]:
    """Beside the default one, pods may choose others by their runtimeClassName. `process` isolates nothing: it is there only when
    it was asked for by name."""
    folder, installation = options.folder / "runtime", options.installation
    if options.backend == "process":
        return [ProcessRuntime(folder / "process", installation=installation)]
    return [
        NamespacesRuntime(folder / "namespaces", installation=installation, entry=FORK_SERVER),
        GvisorRuntime(folder / "gvisor", installation=installation),
    ]


async def _check(backend: Backend, name: str) -> None:
    probe = await backend.probe()
    if not probe.available:
        raise BackendUnavailable(
            f"the backend {name} does not work here: {probe.message or probe.reason}. Without isolation pods can run with "
            "--backend process, and --backend hollow runs nothing in them."
        )


@asynccontextmanager
async def _following(
    policies: Policies, api: Api, clock: Clock, metrics: Metrics, random: Callable[[], float]
) -> AsyncIterator[None]:
    """What sandboxes may reach is known before the first of them starts, and stays up to date."""
    cache: Cache[NetworkPolicy] = Cache(NETWORK_POLICIES)

    def changed(old: NetworkPolicy | None, new: NetworkPolicy | None) -> None:
        if new is not None:
            policies.put(new)
        elif old is not None:
            policies.remove(old.metadata.namespace, old.metadata.name)

    cache.subscribe(changed)
    manager = Manager(Parts(reflectors=(Reflector(api, cache, clock, metrics, random),)))
    async with beside(policies=manager.run(asyncio.Event())):
        await manager.ready.wait()
        yield
