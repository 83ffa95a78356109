"""Stopping and continuing all processes of a control group at once."""

from __future__ import annotations

import asyncio

from sandpool.base.errors import NodeError
from sandpool.node.runtimes.namespaces.forked.cgroup_files import read, write
from sandpool.node.runtimes.namespaces.group_readings import Groups, keyed
from sandpool.node.runtimes.namespaces.hierarchies import FREEZER, UNIFIED

PATIENCE = 10.0
MOMENT = 0.1
"""Enough for whoever is not in the middle of a call to the kernel. One that writes gigabytes is frozen only at its end: who wants to
know how much has been written looks meanwhile."""
PAUSE = 0.001


async def freeze(groups: Groups, group: str, patience: float = PATIENCE) -> bool:
    """False: this machine cannot."""
    return await _set(groups, group, patience, frozen=True)


async def thaw(groups: Groups, group: str) -> bool:
    return await _set(groups, group, PATIENCE, frozen=False)


async def _set(groups: Groups, group: str, patience: float, *, frozen: bool) -> bool:
    place = groups.places.get(UNIFIED) or groups.places.get(FREEZER)
    if place is None:
        return False
    folder = f"{place.folder}/{group}"
    file, value = (
        ("cgroup.freeze", "01"[frozen]) if place.version == 2 else ("freezer.state", ["THAWED", "FROZEN"][frozen])
    )
    try:
        write(f"{folder}/{file}", value)
        async with asyncio.timeout(patience):
            while _is_frozen(folder, place.version) != frozen:  # noqa: ASYNC110  # the kernel has no event for it
                await asyncio.sleep(PAUSE)
    except FileNotFoundError:
        return place.version == 1  # before Linux 5.2 version 2 could not; or there is no such sandbox any more
    except (OSError, TimeoutError) as error:
        raise NodeError("Freezer", f"cannot {'freeze' if frozen else 'thaw'} the sandbox {group}: {error}") from error
    return True


def _is_frozen(folder: str, version: int) -> bool:
    if version == 2:
        return bool(keyed(read(f"{folder}/cgroup.events"), "frozen"))
    return read(f"{folder}/freezer.state").strip() == "FROZEN"
