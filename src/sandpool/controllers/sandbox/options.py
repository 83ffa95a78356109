"""Options of the Sandbox controller."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Options:
    moment: float = 1.0
    """Seconds that a minor status difference waits for others to share a write. What a user waits for is published at once."""
    patience: float = 30.0
    """Seconds that further progress of a pod waits once its beginning has been published, so that a start is few reconciles."""
    cluster_domain: str = "cluster.local"
    evictable_members: bool = True
    """Marks pods of unclaimed pool members as safe to evict, unless their template says otherwise."""
    release_after: float | None = None
    """Seconds after which sandboxes and pods of a released claim that are still there are deleted here. None: they are left to the
    collector, which has nothing else to do where it shares our process."""
    release_in_hand: float = 2.0
    """Likewise for those that a collector with much to do has come to: it is about to delete them."""
