"""CPU and memory usage of pods and nodes, in the kinds of Kubernetes' metrics API. Computed on request and never stored."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol

from sandpool.model.metadata import RawObject, Uid
from sandpool.model.resource import Column, Resource

GROUP = "metrics.k8s.io"
VERSION = "v1beta1"


def _columns(usage: str) -> tuple[Column, ...]:
    return (
        Column("CPU", "string", f".{usage}.cpu"),
        Column("Memory", "string", f".{usage}.memory"),
        Column("Window", "string", ".window"),
    )


POD_METRICS: Resource[RawObject] = Resource(
    GROUP, VERSION, "pods", "PodMetrics", RawObject, columns=_columns("containers[0].usage")
)
NODE_METRICS: Resource[RawObject] = Resource(
    GROUP, VERSION, "nodes", "NodeMetrics", RawObject, namespaced=False, columns=_columns("usage")
)
MEASURED: tuple[Resource[Any], ...] = (NODE_METRICS, POD_METRICS)


@dataclass(frozen=True, slots=True)
class Used:
    """Usage of one pod, over the `window` of seconds that ended at `at`."""

    cores: float  # CPU seconds per second
    memory: int  # bytes at the end of the window
    at: datetime
    window: float


class Usage(Protocol):
    async def used(self) -> Mapping[Uid, Used]:
        """The usage of every pod that runs here."""
        ...
