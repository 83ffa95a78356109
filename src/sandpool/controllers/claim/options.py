"""What can be chosen about the claim controller."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from sandpool.controllers.claim.backlog import Bounds
from sandpool.controllers.claim.pod_metadata import USER_DOMAINS


@dataclass(frozen=True, slots=True)
class Options:
    patience: float = 10.0
    """Seconds that a claim waits in line for a member that is warming before it starts a sandbox of its own."""
    tell_after: float = 2.0
    """Seconds after which a wait is published with its reason."""
    tell_every: float = 15.0
    """Seconds after which the place of a claim that waits is published again, at the earliest."""
    told_per_second: float = 50.0
    """Waits that are published in a second at most: serving claims goes before telling them."""
    moment: float = 1.0
    """Seconds that a change of the sandbox which nobody acts on, such as a message, waits before it is forwarded."""
    annotations: bool = True
    """Writes the annotations that other tools read: the sandbox's name and when the claim was first seen, without which it is never
    Ready, and when it was first ready."""
    annotate_after: float = 0.5
    """Seconds until a claim that was served in the write that created it gets the annotation of its first readiness: so long may a
    client take to read the answer to its POST and not miss that the claim is Ready."""
    annotate_again: float = 10.0
    """Seconds until annotations that could not be written are tried again."""
    label_domains: Sequence[str] = USER_DOMAINS
    """Where claims may take the labels of their pods from."""
    audit_every: float = 600.0
    """Seconds between two comparisons of what is remembered with what is cached."""
    bounds: Bounds = field(default_factory=Bounds)
    """What may wait, where the server asks before it stores a claim."""
