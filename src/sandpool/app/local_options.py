"""What a cluster on this machine is told when it starts."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta

from sandpool.app.controllers import ControllerOptions
from sandpool.app.local_node import BackendName, RuntimeName
from sandpool.controlplane.data_dir import DataDir
from sandpool.controlplane.event_expiry import LIFETIME
from sandpool.controlplane.objects.holdings import HoldingLimits
from sandpool.install.first_pool import NO_POOLS, FirstPools
from sandpool.node.images.options import ImageOptions
from sandpool.node.network.ceiling import UNLIMITED, Ceiling
from sandpool.node.volumes.options import VolumeOptions
from sandpool.telemetry.trace import NullTracer, Tracer


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
    io_rate: int | None = None  # bytes a second of the disk, for each pod
    controllers: ControllerOptions = field(default_factory=ControllerOptions)
    holdings: HoldingLimits = field(default_factory=HoldingLimits)
    pools: FirstPools = NO_POOLS
    router_host: str = "127.0.0.1"
    router_port: int | None = None  # None: no router; also where pods hold nothing to reach
    events: bool = True  # whether controllers tell what they do as Events
    tracer: Tracer = field(default_factory=NullTracer)
    event_lifetime: timedelta = LIFETIME
    accept_loss: bool = False  # start with what is left of a damaged store
    disk_reserve: int | None = None  # bytes that are kept back for deletes and status; None: as the disk is large
