"""The node that a local cluster has: what really runs pods on this machine, with its images, volumes and network."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from random import random as dice
from typing import Literal

from sandpool.base.clock import Clock
from sandpool.base.errors import SandpoolError
from sandpool.kube.api import Api
from sandpool.loop.cache import Cache
from sandpool.loop.lifetimes import beside
from sandpool.loop.manager import Manager, Parts
from sandpool.loop.reflector import Reflector
from sandpool.model.core import NetworkPolicy
from sandpool.model.kinds import NETWORK_POLICIES, PODS
from sandpool.node.backend import Backend, Probe
from sandpool.node.directory import images_of, installation_of
from sandpool.node.disk.guard import DiskGuard
from sandpool.node.images.options import ImageOptions
from sandpool.node.images.prune import PruneRules
from sandpool.node.images.store import ImageStore
from sandpool.node.kubelet.agent import Surroundings
from sandpool.node.network.ceiling import UNLIMITED, Ceiling
from sandpool.node.network.local import LocalNetwork
from sandpool.node.network.policies import Policies
from sandpool.node.pods.backend import PodsBackend
from sandpool.node.runtime_choice import ChosenBackend
from sandpool.node.runtimes.contract import Runtime
from sandpool.node.runtimes.fake import HollowBackend
from sandpool.node.runtimes.gvisor.runtime import GvisorRuntime
from sandpool.node.runtimes.namespaces.runtime import NamespacesRuntime
from sandpool.node.runtimes.namespaces.server import isolated
from sandpool.node.runtimes.process.runtime import ProcessRuntime
from sandpool.node.volumes.options import VolumeOptions
from sandpool.node.volumes.store import VolumeStore
from sandpool.telemetry.metrics import Metrics

BackendName = Literal["namespaces", "gvisor", "process", "hollow", "none"]
"""What pods become by default. hollow: everything but a process. none: nothing, the API server only keeps objects."""

RuntimeName = Literal["namespaces", "gvisor"]
"""What pods may be allowed to choose beside the backend. `process`, which isolates nothing, is never a choice of theirs."""

FORK_SERVER = isolated("from sandpool.app.fork_server import run; run()")
"""The process that forks sandboxes, with boxd on board."""


EVERYTHING_UNUSED = PruneRules(unused_for=0.0, max_bytes=0)
"""Images that go when the disk is nearly full; those that were imported cannot be had again, and stay."""


LIMITS = ("cpu", "memory", "pids", "storage")
"""What a pod may be limited in, by the names that probes have for it."""


class BackendUnavailable(SandpoolError):
    """What was asked for does not work on this machine; there is never a weaker one in its place."""


@dataclass(frozen=True, slots=True)
class MachineOptions:
    folder: Path
    backend: BackendName = "namespaces"
    images: ImageOptions = field(default_factory=ImageOptions)
    volumes: VolumeOptions = field(default_factory=VolumeOptions)
    runtimes: tuple[RuntimeName, ...] = ()  # that pods may choose beside the backend, by their runtimeClassName
    ceiling: Ceiling = UNLIMITED  # what NetworkPolicies may open at most
    io_rate: int | None = None  # bytes a second of the disk, for each pod

    @property
    def installation(self) -> str:
        return installation_of(self.folder)


@dataclass(frozen=True, slots=True)
class Machine:
    """What a kubelet needs of it."""

    backend: Backend
    around: Surroundings
    real: bool  # whether there is something in a pod to reach
    unheld: tuple[str, ...] = ()  # limits of pods that nothing on this machine holds


@asynccontextmanager
async def machine(
    options: MachineOptions, api: Api, clock: Clock, metrics: Metrics, guard: DiskGuard | None = None
) -> AsyncIterator[Machine]:
    """`guard` watches the disk, if anybody does: it is told of the pods here."""
    if options.backend == "hollow":
        yield Machine(HollowBackend(clock), Surroundings(disk=guard), real=False)
        return
    async with AsyncExitStack() as stack:
        leave = 0 if guard is None else 4 * guard.reserve  # well above where pods are evicted for want of room
        images = ImageStore(images_of(options.folder), clock, replace(options.images, leave=leave))
        await images.open()
        stack.push_async_callback(images.close)
        volumes = VolumeStore(options.folder / "volumes", options.volumes)
        stack.push_async_callback(volumes.close)
        await volumes.reap({pod.metadata.uid for pod in (await api.list(PODS)).items})
        policies = Policies(options.ceiling)
        await stack.enter_async_context(_following(policies, api, clock, metrics, dice))
        network = LocalNetwork(policies, clock)
        stack.push_async_callback(network.close)
        backends = [
            PodsBackend(runtime, images, volumes, network, clock, options.folder / "pods" / runtime.name)
            for runtime in runtimes_of(options)
        ]
        chosen = ChosenBackend(backends, options.backend)
        probe = await _check(chosen, options.backend)
        if guard is not None:
            guard.pods = lambda: [pod for backend in backends for pod in backend.occupants()]
            guard.prune = partial(images.prune, EVERYTHING_UNUSED)
        around = Surroundings(offering=chosen.offers, folders=volumes, disk=guard)
        yield Machine(chosen, around, real=True, unheld=unheld_limits(probe, bandwidth=options.io_rate is not None))


def runtimes_of(options: MachineOptions) -> list[Runtime]:
    """The backend, and what the operator allows pods to choose beside it: nothing is offered that nobody asked for."""
    folder, installation = options.folder / "runtime", options.installation
    made: dict[str, Callable[[], Runtime]] = {
        "namespaces": lambda: NamespacesRuntime(
            folder / "namespaces", installation=installation, entry=FORK_SERVER, io_rate=options.io_rate
        ),
        "gvisor": lambda: GvisorRuntime(folder / "gvisor", installation=installation, io_rate=options.io_rate),
        "process": lambda: ProcessRuntime(folder / "process", installation=installation),
    }
    return [made[name]() for name in dict.fromkeys((options.backend, *options.runtimes))]


def unheld_limits(probe: Probe, *, bandwidth: bool) -> tuple[str, ...]:
    """Which limits of pods were tried on this machine and do not hold. `bandwidth`: of the disk's, too, because one was asked for."""
    return tuple(name for name in (*LIMITS, *(["io"] if bandwidth else [])) if name not in probe.enforced)


async def _check(backend: Backend, name: str) -> Probe:
    probe = await backend.probe()
    if not probe.available:
        raise BackendUnavailable(
            f"the backend {name} does not work here: {probe.message or probe.reason}. Without isolation pods can run with "
            "--backend process, and --backend hollow runs nothing in them."
        )
    return probe


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
