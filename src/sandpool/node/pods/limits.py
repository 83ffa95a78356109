"""Translates resource limits of a spec to limits for the runtime and the disk. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from sandpool.base.errors import NodeError
from sandpool.model.quantities import QuantityError, parse
from sandpool.node.backend import ContainerSpec, Workload, WorkloadSpec
from sandpool.node.disk.usage import Limits as StorageLimits
from sandpool.node.runtimes.contract import Limits
from sandpool.node.volumes.spec import EmptyDir

_KNOWN = ("cpu", "memory", "ephemeral-storage")


def container_limits(spec: ContainerSpec) -> Limits:
    limits = spec.resources.limits
    unknown = sorted(set(limits) - set(_KNOWN))
    if unknown:
        raise NodeError(
            "CreateContainerConfigError",
            f"container {spec.name}: resources.limits: {', '.join(unknown)} cannot be provided on this machine; remove them",
        )
    milli = _read(spec, "cpu", lambda text: parse(text).milli)
    return Limits(
        cpu=None if milli is None else milli / 1000,
        memory=_read(spec, "memory", lambda text: parse(text).value),
        storage=_read(spec, "ephemeral-storage", lambda text: parse(text).value),
    )


def pod_limits(spec: WorkloadSpec, pids: int | None) -> Limits:
    """The limit of the whole pod: only if every container has one. Sidecars count in addition to the others."""
    sidecars = [container for container in spec.init_containers if container.restart_policy == "Always"]
    mains = [_or_none(container) for container in (*spec.containers, *sidecars)]
    inits = [_or_none(container) for container in spec.init_containers if container not in sidecars]
    return Limits(
        cpu=_together([one.cpu for one in mains], [one.cpu for one in inits]),
        memory=_whole(_together([one.memory for one in mains], [one.memory for one in inits])),
        storage=_whole(_together([one.storage for one in mains], [one.storage for one in inits])),
        pids=pids,
    )


def storage_limits(workload: Workload) -> StorageLimits:
    """Ephemeral storage: of the pod, of containers, and of emptyDirs on disk that have a sizeLimit."""
    spec = workload.spec
    everybody = (*spec.init_containers, *spec.containers)
    own = {container.name: _or_none(container).storage for container in everybody}
    volumes = {
        volume.name: volume.source.size
        for volume in workload.volumes
        if isinstance(volume.source, EmptyDir) and not volume.source.memory and volume.source.size
    }
    return StorageLimits(
        pod_limits(spec, None).storage,
        {name: limit for name, limit in own.items() if limit is not None},
        volumes,
        sum(_requested(container) for container in spec.containers),
    )


def _requested(spec: ContainerSpec) -> int:
    try:
        return parse(spec.resources.requests.get("ephemeral-storage", "0")).value
    except QuantityError:
        return 0


def _or_none(spec: ContainerSpec) -> Limits:
    """The limits of a container; an invalid one is reported when the container is started."""
    try:
        return container_limits(spec)
    except NodeError:
        return Limits()


def _together(mains: Iterable[float | None], inits: Iterable[float | None]) -> float | None:
    total, most = 0.0, 0.0
    for limit in mains:
        if limit is None:
            return None
        total += limit
    for limit in inits:
        if limit is None:
            return None
        most = max(most, limit)
    return max(total, most)


def _whole(limit: float | None) -> int | None:
    return None if limit is None else int(limit)


def _read(spec: ContainerSpec, name: str, value: Callable[[str], int]) -> int | None:
    text = spec.resources.limits.get(name)
    if text is None:
        return None
    try:
        number = value(text)
    except QuantityError as error:
        raise NodeError(
            "CreateContainerConfigError", f"container {spec.name}: resources.limits.{name}: {text!r}: {error}"
        ) from error
    return number or None  # zero is no limit, as in Kubernetes
