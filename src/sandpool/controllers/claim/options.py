"""Options of the claim controller."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from sandpool.controllers.claim.backlog import Bounds
from sandpool.controllers.claim.pod_metadata import USER_DOMAINS


@dataclass(frozen=True, slots=True)
class Options:
    patience: float = 10.0
    """Seconds that a claim waits for a warming member before it starts a sandbox of its own."""
    report_after: float = 2.0
    """Seconds after which a wait is published with its reason."""
    report_every: float = 15.0
    """Seconds after which the place of a claim that waits is published again, at the earliest."""
    reports_per_second: float = 50.0
    """Waits that are published per second, at most: serving claims goes first."""
    moment: float = 1.0
    """Seconds that a minor change of the sandbox, such as a message, waits before it is forwarded."""
    annotations: bool = True
    """Writes the annotations that other tools read: the sandbox's name and when the claim was first seen, without which it is never
    Ready, and when it was first ready."""
    annotate_after: float = 0.5
    """Seconds until a claim that was bound inline gets the annotation of its first readiness: a client that has read the response to its
    POST by then does not miss that the claim is Ready."""
    annotate_again: float = 10.0
    """Seconds until annotations that could not be written are tried again."""
    label_domains: Sequence[str] = USER_DOMAINS
    """Domains of the labels that claims may add to their pods."""
    audit_every: float = 600.0
    """Seconds between two audits of memory against the caches."""
    bounds: Bounds = field(default_factory=Bounds)
    """How many claims may wait, where the API server asks before it stores a claim (inline hooks)."""
