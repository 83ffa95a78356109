"""What a pod uses of the disk, and whether it may. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from sandpool.node.disk.plan import GIB, allowance

LOW = "The node was low on resource: {resource}. {used} is in use by the pod, which requested {request}."


@dataclass(frozen=True, slots=True)
class Limits:
    """Bytes. Of the whole pod, by container for its writable layer and logs, by volume for emptyDirs with a sizeLimit."""

    pod: int | None = None
    containers: Mapping[str, int] = field(default_factory=dict)
    volumes: Mapping[str, int] = field(default_factory=dict)
    request: int = 0

    @property
    def any(self) -> bool:
        return self.pod is not None or bool(self.containers) or bool(self.volumes)


@dataclass(frozen=True, slots=True)
class Used:
    """Bytes, as Kubernetes counts ephemeral storage. `hidden`: of files that are open and have no name any more."""

    containers: Mapping[str, int] = field(default_factory=dict)
    volumes: Mapping[str, int] = field(default_factory=dict)
    hidden: int = 0
    beyond: int = 0  # of persistent volumes, above their size
    inodes: int = 0

    @property
    def total(self) -> int:
        return sum(self.containers.values()) + sum(self.volumes.values()) + self.hidden


def why_evicted(used: Used, limits: Limits) -> str:
    """In Kubernetes' words; empty: it is within its limits."""
    for name, size in limits.volumes.items():
        if used.volumes.get(name, 0) > size:
            return f'Usage of EmptyDir volume "{name}" exceeds the limit "{quantity(size)}". '
    if limits.pod is not None and used.total > limits.pod:
        return f"Pod ephemeral local storage usage exceeds the total limit of containers {quantity(limits.pod)}. "
    for name, size in limits.containers.items():
        if used.containers.get(name, 0) > size:
            return f'Container {name} exceeded its local ephemeral storage limit "{quantity(size)}". '
    return ""


def nearest(used: Used, limits: Limits) -> tuple[int | None, int]:
    """The slack to the limit that is nearest, and how far past it the pod may get."""
    found = [(size - used.volumes.get(name, 0), size) for name, size in limits.volumes.items()]
    found += [(size - used.containers.get(name, 0) - used.hidden, size) for name, size in limits.containers.items()]
    if limits.pod is not None:
        found.append((limits.pod - used.total, limits.pod))
    if not found:
        return None, GIB
    slack, limit = min(found)
    return slack, allowance(limit)


def quantity(size: int) -> str:
    """As a manifest would say it."""
    for unit, step in (("Gi", 1 << 30), ("Mi", 1 << 20), ("Ki", 1 << 10)):
        if size and size % step == 0:
            return f"{size // step}{unit}"
    return str(size)


def low_message(used: Used, limits: Limits, resource: str) -> str:
    return LOW.format(
        resource=resource, used=quantity_about(used.total + used.beyond), request=quantity(limits.request)
    )


def quantity_about(size: int) -> str:
    return f"{-(-size // 1024)}Ki"
