"""Builds the node of a local cluster: runtimes, images, volumes and network."""

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
from sandpool.node.kubelet.agent import KubeletServices
from sandpool.node.network.egress_rules import UNLIMITED, Ceiling
from sandpool.node.network.node_network import NodeNetwork
from sandpool.node.network.policy import Policies
from sandpool.node.pods.backend import PodsBackend
from sandpool.node.runtime_choice import ChosenBackend
from sandpool.node.runtimes.contract import Runtime
from sandpool.node.runtimes.fake import FakeBackend
from sandpool.node.runtimes.gvisor.runtime import GvisorRuntime
from sandpool.node.runtimes.namespaces.fork_server import isolated_python
from sandpool.node.runtimes.namespaces.runtime import NamespacesRuntime
from sandpool.node.runtimes.namespaces.runtime_host import shims_of
from sandpool.node.runtimes.process.runtime import ProcessRuntime
from sandpool.node.volumes.spec import VolumeOptions
from sandpool.node.volumes.store import VolumeStore
from sandpool.telemetry.metrics import Metrics

BackendName = Literal["namespaces", "gvisor", "process", "fake", "hollow", "none"]
"""How pods run by default. fake (older name: hollow): without any process. none: pods do not run, the API server only stores objects."""

RuntimeName = Literal["namespaces", "gvisor"]
"""Runtimes that pods may be allowed to choose beside the backend; never `process`, which isolates nothing."""

FORK_SERVER = isolated_python("from sandpool.app.fork_server import run; run()")
"""The command line of the fork-server, which has boxd loaded."""


EVERYTHING_UNUSED = PruneRules(unused_for=0.0, max_bytes=0)
"""Prunes all unused images when the disk is nearly full. Imported images stay, because they cannot be pulled again."""


LIMITS = ("cpu", "memory", "pids", "storage")
"""The limits of a pod, by the names that probes use."""


class BackendUnavailable(SandpoolError):
    """The requested backend does not work on this machine. It is never replaced by a weaker one."""


@dataclass(frozen=True, slots=True)
class MachineOptions:
    folder: Path
    backend: BackendName = "namespaces"
    images: ImageOptions = field(default_factory=ImageOptions)
    volumes: VolumeOptions = field(default_factory=VolumeOptions)
    runtimes: tuple[RuntimeName, ...] = ()  # further runtimes that pods may choose by runtimeClassName
    ceiling: Ceiling = UNLIMITED  # the most that NetworkPolicies may allow
    io_rate: int | None = None  # disk bandwidth of each pod, in bytes per second

    @property
    def installation(self) -> str:
        return installation_of(self.folder)


@dataclass(frozen=True, slots=True)
class Machine:
    """The node of a local cluster: its backend, and what its kubelet uses."""

    backend: Backend
    around: KubeletServices
    real: bool  # whether pods contain processes to connect to
    unheld: tuple[str, ...] = ()  # limits of pods that this machine cannot enforce


@asynccontextmanager
async def machine(
    options: MachineOptions, api: Api, clock: Clock, metrics: Metrics, guard: DiskGuard | None = None
) -> AsyncIterator[Machine]:
    """Opens the node. `guard` watches the disk; it gets the list of pods to measure."""
    if "namespaces" not in (
        options.backend,
        *options.runtimes,
    ):  # sandboxes that an earlier process left, and that nobody takes over
        await asyncio.to_thread(shims_of(options.folder / "runtime" / "namespaces").end_all)
    if options.backend in ("fake", "hollow"):
        yield Machine(FakeBackend(clock), KubeletServices(disk=guard), real=False)
        return
    async with AsyncExitStack() as stack:
        leave = 0 if guard is None else 4 * guard.reserve  # well above the free space at which pods are evicted
        images = ImageStore(images_of(options.folder), clock, replace(options.images, leave=leave))
        await images.open(prune=False)
        stack.push_async_callback(images.close)
        volumes = VolumeStore(options.folder / "volumes", options.volumes)
        stack.push_async_callback(volumes.close)
        await volumes.reap({pod.metadata.uid for pod in (await api.list(PODS)).items})
        policies = Policies(options.ceiling)
        await stack.enter_async_context(_following(policies, api, clock, metrics, dice))
        network = NodeNetwork(policies, clock)
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
        around = KubeletServices(offering=chosen.offers, folders=volumes, disk=guard)
        yield Machine(chosen, around, real=True, unheld=unheld_limits(probe, bandwidth=options.io_rate is not None))


def runtimes_of(options: MachineOptions) -> list[Runtime]:
    """The backend's runtime first, then those that the operator allows pods to choose."""
    folder, installation = options.folder / "runtime", options.installation
    made: dict[str, Callable[[], Runtime]] = {
        "namespaces": lambda: NamespacesRuntime(
            folder / "namespaces", installation=installation, entry=FORK_SERVER, io_rate=options.io_rate, lasting=True
        ),
        "gvisor": lambda: GvisorRuntime(folder / "gvisor", installation=installation, io_rate=options.io_rate),
        "process": lambda: ProcessRuntime(folder / "process", installation=installation),
    }
    return [made[name]() for name in dict.fromkeys((options.backend, *options.runtimes))]


def unheld_limits(probe: Probe, *, bandwidth: bool) -> tuple[str, ...]:
    """The limits that the probe found not to be enforced on this machine. `bandwidth`: include the limit of disk bandwidth, which was requested."""
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
    """Loads all NetworkPolicies before the body starts, so before the first sandbox, and keeps them up to date."""
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
