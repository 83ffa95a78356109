"""Computes the control group files to write for the limits of tenants, sandboxes and containers. Pure, except for reading properties of the disk.

Without a limit, pods share a disk as its I/O scheduler decides. With bfq or io.cost it shares by the weight of control groups, so pods get
groups. All others serve in the order of arrival; groups would change nothing, so none are created.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from sandpool.node.runtimes.contract import Bandwidth, Limits
from sandpool.node.runtimes.namespaces.cgroup_hierarchy import UNIFIED, ControllerPath
from sandpool.node.runtimes.namespaces.forked.cgroups import Group, Setting, read

PERIOD = 100_000
LEAST_QUOTA = 1_000
# Version 1 counts socket buffers separately from other memory, and only in groups that have a limit for them.
SOCKETS = "memory.kmem.tcp.limit_in_bytes"
SOCKET_PART, LEAST_SOCKET_BYTES, DEFAULT_SOCKET_BYTES = 8, 8 << 20, 256 << 20
TENANT = "tenant-"
SHARED = "-shared"  # no container has such a name


def settings(version: int, controller: str, limits: Limits) -> list[Setting]:
    match controller:
        case "memory" if limits.memory is not None and version == 1:
            return [
                ("memory.limit_in_bytes", str(limits.memory), True),
                ("memory.memsw.limit_in_bytes", str(limits.memory), False),
                ("memory.swappiness", "0", False),
                (SOCKETS, str(socket_bytes(limits.memory)), False),
            ]
        case "memory" if limits.memory is not None:
            return [("memory.max", str(limits.memory), True), ("memory.swap.max", "0", False)]
        case "cpu" if limits.cpu is not None:
            quota = max(LEAST_QUOTA, round(limits.cpu * PERIOD))
            if version == 1:
                return [("cpu.cfs_period_us", str(PERIOD), True), ("cpu.cfs_quota_us", str(quota), True)]
            return [("cpu.max", f"{quota} {PERIOD}", True)]
        case "pids" if limits.pids is not None:
            return [("pids.max", str(limits.pids), True)]
        case "io" if limits.io is not None:
            return io_settings(version, limits.io)
    return []


def socket_bytes(memory: int) -> int:
    """The limit of socket buffers for a memory limit that does not include them."""
    return max(LEAST_SOCKET_BYTES, memory // SOCKET_PART)


def socket_bytes_of_all(memory: int, tcp_mem: str, page: int) -> int:
    """The limit of socket buffers of all sandboxes together: low enough that the kernel does not come under TCP memory pressure. `tcp_mem` has
    its three thresholds, in pages."""
    bounds = [int(each) for each in tcp_mem.split() if each.isdigit()]
    return min([socket_bytes(memory), *(pages * page // 2 for pages in bounds[1:2])])


def weight(version: int, cpus: int) -> Setting:
    """The CPU weight of all sandboxes together: that of one busy process per CPU. By default, a group weighs only as much as a single process,
    however many processes are in it."""
    return (
        ("cpu.shares", str(1024 * cpus), False) if version == 1 else ("cpu.weight", str(min(100 * cpus, 10_000)), False)
    )


def by_hierarchy(places: Mapping[str, ControllerPath]) -> dict[str, dict[str, ControllerPath]]:
    """The hierarchies, by directory, with the controllers of each."""
    found: dict[str, dict[str, ControllerPath]] = {}
    for name, place in places.items():
        found.setdefault(place.directory, {})[name] = place
    return found


def delegated(here: Mapping[str, ControllerPath]) -> list[Setting]:
    """The settings with which a version 2 group delegates controllers to its subgroups. The group itself must have no processes."""
    names = [f"+{name}" for name, place in here.items() if place.version == 2 and name != UNIFIED]
    return [("cgroup.subtree_control", " ".join(names), True)] if names else []


def places_of(places: Mapping[str, ControllerPath], tenant: str) -> dict[str, ControllerPath]:
    """The parent groups of a tenant's sandboxes. In the hierarchy with the memory controller, the parent is the tenant's own group; in others
    nothing is counted per tenant. Sandboxes without a tenant, such as those of a probe, have no such group."""
    memory = places.get("memory")
    if memory is None or not tenant:
        return dict(places)
    own = f"{memory.directory}/{TENANT}{tenant}"
    return {
        name: ControllerPath(place.version, own) if place.directory == memory.directory else place
        for name, place in places.items()
    }


def tenant_group(places: Mapping[str, ControllerPath], tenant: str) -> Group | None:
    """The group that counts a tenant's memory, as it is created. Its limits are written later."""
    memory = places_of(places, tenant).get("memory") if tenant else None
    if memory is None:
        return None
    here = {name: place for name, place in places_of(places, tenant).items() if place.directory == memory.directory}
    counted: list[Setting] = [("memory.use_hierarchy", "1", False)] if memory.version == 1 else []  # before Linux 5.11
    return memory.directory, [*counted, *delegated(here)]


def sandbox_groups(places: Mapping[str, ControllerPath], sandbox: str, limits: Limits) -> list[Group]:
    """One group on each hierarchy, with the limits of all its controllers."""
    return [
        (f"{directory}/{sandbox}", [*_all_settings(here, limits), *_uncounted(here, limits), *delegated(here)])
        for directory, here in by_hierarchy(places).items()
    ]


def _uncounted(here: Mapping[str, ControllerPath], limits: Limits) -> list[Setting]:
    """The socket limit of a sandbox without a memory limit: without any limit, the kernel would not count its socket buffers at all."""
    place = here.get("memory")
    if place is None or place.version != 1 or limits.memory is not None:
        return []
    return [(SOCKETS, str(DEFAULT_SOCKET_BYTES), False)]


def container_groups(
    places: Mapping[str, ControllerPath], sandbox: str, name: str, limits: Limits
) -> tuple[list[Group], list[str]]:
    """Returns the groups to create for a container, where it has its own limits or cannot be in the sandbox's group, and the groups that it
    joins."""
    made: list[Group] = []
    joined: list[str] = []
    for directory, here in by_hierarchy(places).items():
        values = _all_settings(here, limits)
        path = f"{directory}/{sandbox}"
        if values or delegated(here):
            path = f"{path}/{name}"
            made.append((path, values))
        joined.append(path)
    return made, joined


def shared_groups(places: Mapping[str, ControllerPath], sandbox: str) -> tuple[list[Group], list[str]]:
    """The groups to create, and to join, for the worker that creates what the containers of a sandbox share. Namespaces and volumes are kernel
    memory, which stays charged as long as something holds them. Only memory is counted here."""
    memory = places.get("memory")
    here = {name: place for name, place in places.items() if memory is not None and place.directory == memory.directory}
    return container_groups(here, sandbox, SHARED, Limits())


def _all_settings(here: Mapping[str, ControllerPath], limits: Limits) -> list[Setting]:
    return [setting for name, place in here.items() for setting in settings(place.version, name, limits)]


BLOCK_DEVICES = Path("/sys/dev/block")


def disk_of(directory: Path, block: Path = BLOCK_DEVICES) -> str:
    """The device number (254:0) of the disk of a directory's file system; empty if it is on no single disk."""
    while not directory.exists():
        directory = directory.parent
    device = os.stat(directory).st_dev
    number = f"{os.major(device)}:{os.minor(device)}"
    place = block / number
    if not place.exists():
        return ""  # tmpfs, overlay, btrfs, a network file system
    if (place / "partition").exists():
        return (place.resolve().parent / "dev").read_text().strip()
    return number


def shares_by_weight(disk: str, costs: str, block: Path = BLOCK_DEVICES) -> bool:
    """Whether the disk's scheduler gives each competing group a share. `costs` is the machine's io.cost.qos."""
    if not disk:
        return False
    scheduler = read(str(block / disk / "queue" / "scheduler"))
    return "[bfq]" in scheduler or any(line.startswith(f"{disk} enable=1") for line in costs.splitlines())


def io_settings(version: int, limit: Bandwidth) -> list[Setting]:
    if version == 1:
        return [(f"blkio.throttle.{way}_bps_device", f"{limit.disk} {limit.rate}", True) for way in ("read", "write")]
    return [("io.max", f"{limit.disk} rbps={limit.rate} wbps={limit.rate}", True)]


def io_note(rate: int | None, disk: str, version: int | None) -> str:
    """Which part of the I/O limit this machine does not enforce. `version` is that of the control groups, None if there are none."""
    if rate is None:
        return ""
    if not disk:
        return "The limit of disk bandwidth is not held: the data directory is not on one disk."
    if version is None:
        return "The limit of disk bandwidth is not held: there is no control group for it that this user may write."
    if version == 1:
        return "The limit of disk bandwidth holds for reads and for writes that are direct or synced: version 1 of control groups does not hold what the kernel writes back later."
    return ""
