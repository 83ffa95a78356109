"""Metrics whose values are kept where they arise and are read when somebody scrapes. Declared here, shown by `Metrics.show`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Family:
    name: str  # of a counter without `_total`, which is added when it is shown
    help: str
    labels: tuple[str, ...]
    counter: bool = False


Values = Mapping[tuple[str, ...], float]
"""By the values of the labels, in their order."""
Reader = Callable[[], Iterable[tuple[Family, Values]]]

_POOL = ("namespace", "pool")
POOL_DESIRED = Family("sandpool_pool_desired", "Members that a pool should keep unclaimed.", _POOL)
POOL_READY = Family("sandpool_pool_ready", "Members that can be claimed at once.", _POOL)
POOL_WARMING = Family("sandpool_pool_warming", "Members that will become ready.", _POOL)
POOL_RESERVED = Family("sandpool_pool_reserved", "Members that are just being handed to a claim.", _POOL)
POOL_WAITING = Family("sandpool_pool_waiting", "Claims that wait for a member to become ready.", _POOL)
POOL_CLAIMED = Family("sandpool_pool_claimed", "Claims of a pool that hold a sandbox.", _POOL)
POOL_HITS = Family("sandpool_pool_hits", "Claims that got a warm member.", _POOL, counter=True)
POOL_MISSES = Family(
    "sandpool_pool_misses",
    "Claims that could have had a warm member and started cold.",
    _POOL,
    counter=True,
)
SANDBOXES = Family("sandpool_sandboxes", "Sandboxes by what they are doing.", ("namespace", "state"))
CONTRACT_SANDBOXES = Family(
    "agent_sandboxes",
    "Sandboxes that exist.",
    ("namespace", "ready_condition", "expired", "launch_type", "sandbox_template", "owned_by", "created_by"),
)
CONTRACT_CLAIMS = Family(
    "agent_sandbox_claim_creation",
    "Sandboxes that were handed to a claim.",
    ("namespace", "sandbox_template", "launch_type", "warmpool_name", "pod_condition", "created_by"),
    counter=True,
)
DISK_FREE = Family(
    "sandpool_disk_free_bytes", "Bytes that sandboxes may still take on the file system of the data directory.", ()
)
DISK_RESERVE = Family("sandpool_disk_reserve_bytes", "Bytes that are kept back for deletes and status.", ())
DISK_RESERVE_HELD = Family("sandpool_disk_reserve_held_bytes", "How much of the reserve is there at the moment.", ())
DISK_LEVEL = Family("sandpool_disk_level", "1 for how full the disk is: ok, pressure or full.", ("level",))
DISK_EVICTIONS = Family(
    "sandpool_disk_evictions",
    "Pods that were evicted: past a limit of their own, or because the disk was nearly full.",
    ("cause",),
    counter=True,
)
ALL = (
    POOL_DESIRED,
    POOL_READY,
    POOL_WARMING,
    POOL_RESERVED,
    POOL_WAITING,
    POOL_CLAIMED,
    POOL_HITS,
    POOL_MISSES,
    SANDBOXES,
    CONTRACT_SANDBOXES,
    CONTRACT_CLAIMS,
    DISK_FREE,
    DISK_RESERVE,
    DISK_RESERVE_HELD,
    DISK_LEVEL,
    DISK_EVICTIONS,
)
