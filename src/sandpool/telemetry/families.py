"""Metrics whose values are kept elsewhere and are read at each scrape. Declared here, shown by `Metrics.show`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Family:
    """The declaration of one metric."""

    name: str  # of a counter without `_total`, which is added when it is shown
    help: str
    labels: tuple[str, ...]
    counter: bool = False


Values = Mapping[tuple[str, ...], float]
"""By the values of the labels, in their order."""
Reader = Callable[[], Iterable[tuple[Family, Values]]]


class Share(Protocol):
    """What is shown of a resource that tenants share. base/shares.py keeps it."""

    total: int
    used: int
    own: int
    held: dict[str, int]
    refused: int
    revoked: int


_POOL = ("namespace", "pool")
POOL_DESIRED = Family("sandpool_pool_desired", "Members that a pool should keep unclaimed.", _POOL)
POOL_READY = Family("sandpool_pool_ready", "Members that can be claimed at once.", _POOL)
POOL_WARMING = Family("sandpool_pool_warming", "Members that will become ready.", _POOL)
POOL_RESERVED = Family("sandpool_pool_reserved", "Members that are just being handed to a claim.", _POOL)
POOL_WAITING = Family("sandpool_pool_waiting", "Claims that wait for a member to become ready.", _POOL)
POOL_OLDEST_WAIT = Family(
    "sandpool_pool_oldest_wait_seconds", "How long the claim that is next in line has waited.", _POOL
)
POOL_EXPECTED_WAIT = Family(
    "sandpool_pool_expected_wait_seconds",
    "How long a claim that came now would wait, by the rate of refill; 0 if nobody can say.",
    _POOL,
)
POOL_REFILL_RATE = Family(
    "sandpool_pool_starts_per_second", "Members and cold sandboxes that became ready, a second, of late.", _POOL
)
POOL_CLAIMED = Family("sandpool_pool_claimed", "Claims of a pool that hold a sandbox.", _POOL)
POOL_HITS = Family("sandpool_pool_hits", "Claims that got a warm member.", _POOL, counter=True)
POOL_MISSES = Family(
    "sandpool_pool_misses",
    "Claims that could have had a warm member and started cold.",
    _POOL,
    counter=True,
)
POOL_COLD_STARTS = Family(
    "sandpool_pool_cold_starts",
    "Sandboxes that were started for one claim, by why it did not wait for a member.",
    (*_POOL, "reason"),
    counter=True,
)
STATUS_REFUSED = Family(
    "sandpool_status_refused",
    "Objects whose status the API server refuses to let the controllers write.",
    ("resource",),
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
_RESOURCE = ("resource",)
SHARE_TOTAL = Family("sandpool_share_total", "How much there is of a resource that tenants share.", _RESOURCE)
SHARE_USED = Family("sandpool_share_used", "How much of it tenants use together.", _RESOURCE)
SHARE_OPERATOR = Family("sandpool_share_operator", "How much the operator uses of what is its own.", _RESOURCE)
SHARE_TENANTS = Family("sandpool_share_tenants", "Tenants that use some of it.", _RESOURCE)
SHARE_REFUSED = Family("sandpool_share_refusals", "Requests for more that were refused.", _RESOURCE, counter=True)
SHARE_REVOKED = Family(
    "sandpool_share_revocations", "What was taken from one tenant for another.", _RESOURCE, counter=True
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
WRITE_LIMIT = Family(
    "sandpool_client_write_limit", "Writes that may be in flight at once, as the server's answers allow.", ()
)
_LANE = ("lane",)
WRITES_IN_FLIGHT = Family(
    "sandpool_client_writes_in_flight", "Writes that have no answer yet, by what they are for.", _LANE
)
WRITES_WAITING = Family(
    "sandpool_client_writes_waiting", "Writes that wait until there are fewer in flight, by what they are for.", _LANE
)
WRITES_THROTTLED = Family(
    "sandpool_client_writes_throttled", "Writes that the server answered with 429, each try counted.", (), counter=True
)
WRITE_LIMIT_LOWERED = Family(
    "sandpool_client_write_limit_lowered",
    "Times the limit was lowered: throttled (429), failed (503, 504, no answer) or slow.",
    ("cause",),
    counter=True,
)
ALL = (
    SHARE_TOTAL,
    SHARE_USED,
    SHARE_OPERATOR,
    SHARE_TENANTS,
    SHARE_REFUSED,
    SHARE_REVOKED,
    POOL_DESIRED,
    POOL_READY,
    POOL_WARMING,
    POOL_RESERVED,
    POOL_WAITING,
    POOL_OLDEST_WAIT,
    POOL_EXPECTED_WAIT,
    POOL_REFILL_RATE,
    POOL_CLAIMED,
    POOL_HITS,
    POOL_MISSES,
    POOL_COLD_STARTS,
    STATUS_REFUSED,
    SANDBOXES,
    CONTRACT_SANDBOXES,
    CONTRACT_CLAIMS,
    DISK_FREE,
    DISK_RESERVE,
    DISK_RESERVE_HELD,
    DISK_LEVEL,
    DISK_EVICTIONS,
    WRITE_LIMIT,
    WRITES_IN_FLIGHT,
    WRITES_WAITING,
    WRITES_THROTTLED,
    WRITE_LIMIT_LOWERED,
)


def of_shares(shares: Mapping[str, Share]) -> Iterable[tuple[Family, Values]]:
    """By the name of each resource. Tenants are counted, not named: there may be any number of them."""
    for family, read in _SHOWN if shares else ():
        yield family, {(name,): read(share) for name, share in shares.items()}


_SHOWN: tuple[tuple[Family, Callable[[Share], float]], ...] = (
    (SHARE_TOTAL, lambda share: share.total),
    (SHARE_USED, lambda share: share.used),
    (SHARE_OPERATOR, lambda share: share.own),
    (SHARE_TENANTS, lambda share: len(share.held)),
    (SHARE_REFUSED, lambda share: share.refused),
    (SHARE_REVOKED, lambda share: share.revoked),
)
