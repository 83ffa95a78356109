"""The options of a local cluster."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta

from sandpool.app.controllers import ControllerOptions
from sandpool.app.local_node import BackendName, RuntimeName
from sandpool.controlplane.data_dir import DataDir
from sandpool.controlplane.event_expiry import LIFETIME, MOST_BYTES
from sandpool.controlplane.objects.holdings import HoldingLimits
from sandpool.controlplane.store.history import HistoryLimits
from sandpool.controlplane.store.writer import Bounds
from sandpool.install.first_pool import NO_POOLS, FirstPools
from sandpool.loop.events import Restraint
from sandpool.node.images.options import ImageOptions
from sandpool.node.network.egress_rules import UNLIMITED, Ceiling
from sandpool.node.volumes.spec import VolumeOptions
from sandpool.telemetry.reconcile_history import ReconcileHistory
from sandpool.telemetry.trace import NullTracer, Tracer


@dataclass(frozen=True, slots=True)
class Retention:
    """How much a cluster keeps of the past."""

    history: HistoryLimits = field(default_factory=HistoryLimits)  # of changes, for watches
    log: Bounds = field(default_factory=Bounds)
    event_bytes: int = MOST_BYTES  # total size of stored Events
    events: Restraint = field(default_factory=Restraint)  # of the event recorder's memory
    reconciles: Callable[[], ReconcileHistory] = ReconcileHistory


@dataclass(frozen=True, slots=True)
class LocalOptions:
    data_dir: DataDir
    host: str = "127.0.0.1"
    port: int = 0
    backend: BackendName = "namespaces"
    images: ImageOptions = field(default_factory=ImageOptions)
    volumes: VolumeOptions = field(default_factory=VolumeOptions)
    runtimes: tuple[RuntimeName, ...] = ()
    ceiling: Ceiling = UNLIMITED
    io_rate: int | None = None  # disk bandwidth of each pod, in bytes per second
    controllers: ControllerOptions = field(default_factory=ControllerOptions)
    holdings: HoldingLimits = field(default_factory=HoldingLimits)
    pools: FirstPools = NO_POOLS
    router_host: str = "127.0.0.1"
    router_port: int | None = None  # None: no router. There is none either if pods have no processes
    events: bool = True  # whether controllers emit Events
    tracer: Tracer = field(default_factory=NullTracer)
    event_lifetime: timedelta = LIFETIME
    accept_loss: bool = False  # start with what is left of a damaged store
    retention: Retention = field(default_factory=Retention)
    disk_reserve: int | None = None  # bytes reserved for deletes and status; None: depends on the disk's size

    def __post_init__(self) -> None:
        if self.backend == "fake":  # clients of a running cluster know it as `hollow`
            object.__setattr__(self, "backend", "hollow")
