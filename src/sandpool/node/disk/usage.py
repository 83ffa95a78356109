"""What a pod uses of the disk, its limits, and what the disk guard asks of a pod. Pure, apart from the protocol."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from sandpool.model.metadata import Uid
from sandpool.node.disk.plan import GIB, allowance

LOW_ON_RESOURCE = "The node was low on resource: {resource}. {used} is in use by the pod, which requested {request}."


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits in bytes: of the whole pod, of each container for its writable layer and logs, of each emptyDir with a sizeLimit."""

    pod: int | None = None
    containers: Mapping[str, int] = field(default_factory=dict)
    volumes: Mapping[str, int] = field(default_factory=dict)
    request: int = 0

    @property
    def any(self) -> bool:
        return self.pod is not None or bool(self.containers) or bool(self.volumes)


@dataclass(frozen=True, slots=True)
class Used:
    """Bytes, as Kubernetes counts ephemeral storage. `hidden`: in deleted files that are still open."""

    containers: Mapping[str, int] = field(default_factory=dict)
    volumes: Mapping[str, int] = field(default_factory=dict)
    hidden: int = 0
    beyond: int = 0  # of persistent volumes, above their size
    inodes: int = 0

    @property
    def total(self) -> int:
        return sum(self.containers.values()) + sum(self.volumes.values()) + self.hidden


def eviction_message(used: Used, limits: Limits) -> str:
    """The message of Kubernetes for an eviction; empty if the pod is within its limits."""
    for name, size in limits.volumes.items():
        if used.volumes.get(name, 0) > size:
            return f'Usage of EmptyDir volume "{name}" exceeds the limit "{quantity(size)}". '
    if limits.pod is not None and used.total > limits.pod:
        return f"Pod ephemeral local storage usage exceeds the total limit of containers {quantity(limits.pod)}. "
    for name, size in limits.containers.items():
        if used.containers.get(name, 0) > size:
            return f'Container {name} exceeded its local ephemeral storage limit "{quantity(size)}". '
    return ""


def nearest_limit(used: Used, limits: Limits) -> tuple[int | None, int]:
    """The bytes left to the nearest limit, and how far beyond it the pod may get."""
    found = [(size - used.volumes.get(name, 0), size) for name, size in limits.volumes.items()]
    found += [(size - used.containers.get(name, 0) - used.hidden, size) for name, size in limits.containers.items()]
    if limits.pod is not None:
        found.append((limits.pod - used.total, limits.pod))
    if not found:
        return None, GIB
    slack, limit = min(found)
    return slack, allowance(limit)


def quantity(size: int) -> str:
    """The size as a Kubernetes quantity."""
    for unit, step in (("Gi", 1 << 30), ("Mi", 1 << 20), ("Ki", 1 << 10)):
        if size and size % step == 0:
            return f"{size // step}{unit}"
    return str(size)


def low_message(used: Used, limits: Limits, resource: str) -> str:
    return LOW_ON_RESOURCE.format(
        resource=resource, used=quantity_about(used.total + used.beyond), request=quantity(limits.request)
    )


def quantity_about(size: int) -> str:
    return f"{-(-size // 1024)}Ki"


class Occupant(Protocol):
    """A pod that may fill the disk. All methods raise NodeError and nothing else."""

    @property
    def uid(self) -> Uid: ...

    @property
    def limits(self) -> Limits: ...

    @property
    def began_empty(self) -> bool:
        """Whether it started without files; a pod that is started again may have some."""
        ...

    @property
    def over(self) -> bool:
        """Whether it has ended for good, and only its logs are left."""
        ...

    async def measure(self, *, thorough: bool) -> Used:
        """Measures its files. `thorough`: those of persistent volumes, too."""
        ...

    async def freeze(self) -> None:
        """Stops all its processes for a moment. May be repeated."""
        ...

    async def thaw(self) -> None:
        """Lets its processes continue. May be repeated."""
        ...

    def evict(self, message: str) -> None:
        """Kills it at once and removes its files; `message` goes to its status."""
        ...
