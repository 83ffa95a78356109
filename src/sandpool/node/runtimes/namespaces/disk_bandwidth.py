"""How fast a pod may read from and write to the disk that holds the data directory.

Without a limit pods share a disk as its scheduler shares it: by weight with bfq or io.cost, where control groups of the pods
take part; by order of arrival with all others, where nothing is gained by groups and none are made.
"""

from __future__ import annotations

import os
from pathlib import Path

from sandpool.node.runtimes.contract import Bandwidth
from sandpool.node.runtimes.namespaces.forked.cgroup_files import Setting, read

BLOCK = Path("/sys/dev/block")


def disk_of(folder: Path, block: Path = BLOCK) -> str:
    """The number (254:0) of the whole disk below a folder's file system; empty if it is on none, or on several."""
    while not folder.exists():
        folder = folder.parent
    device = os.stat(folder).st_dev
    number = f"{os.major(device)}:{os.minor(device)}"
    place = block / number
    if not place.exists():
        return ""  # tmpfs, overlay, btrfs, a network
    if (place / "partition").exists():
        return (place.resolve().parent / "dev").read_text().strip()
    return number


def weighs(disk: str, costs: str, block: Path = BLOCK) -> bool:
    """Whether its scheduler gives groups that compete a share each; `costs` is the machine's io.cost.qos."""
    if not disk:
        return False
    scheduler = read(str(block / disk / "queue" / "scheduler"))
    return "[bfq]" in scheduler or any(line.startswith(f"{disk} enable=1") for line in costs.splitlines())


def settings(version: int, limit: Bandwidth) -> list[Setting]:
    if version == 1:
        return [(f"blkio.throttle.{way}_bps_device", f"{limit.disk} {limit.rate}", True) for way in ("read", "write")]
    return [("io.max", f"{limit.disk} rbps={limit.rate} wbps={limit.rate}", True)]


def note(rate: int | None, disk: str, version: int | None) -> str:
    """What of the limit this machine does not hold; `version` of the control groups that do, None if there are none."""
    if rate is None:
        return ""
    if not disk:
        return "The limit of disk bandwidth is not held: the data directory is not on one disk."
    if version is None:
        return "The limit of disk bandwidth is not held: there is no control group for it that this user may write."
    if version == 1:
        return "The limit of disk bandwidth holds for reads and for writes that are direct or synced: version 1 of control groups does not hold what the kernel writes back later."
    return ""
