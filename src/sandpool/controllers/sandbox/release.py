"""What becomes of a sandbox whose claim was released. Pure: no I/O, no clock.

The garbage collector of a cluster would delete it as well, but it works for everybody and manages a dozen objects a second. So it
gets a head start: where it has nothing else to do it is done by then. When many claims are released at once it takes them in order, some at
a time; what it has in hand it keeps for longer. So nobody asks for the same thing twice, and together there are fewer requests than it alone would make.
What is deleted here goes in order, the sandbox first and then its pod, each with the uid and the revision that were seen. Whoever changed one of them
meanwhile wins: an orphaned sandbox has another revision, and then it has no claim.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import islice

from sandpool.controllers.sandbox.steps import Delete, delete
from sandpool.controllers.sandbox.view import extension_owner
from sandpool.model.claim import SandboxClaim
from sandpool.model.kinds import PODS, SANDBOXES
from sandpool.model.metadata import Metadata, OwnerReference, Uid
from sandpool.model.pod import Pod
from sandpool.model.sandbox import Sandbox

ORPHAN = "orphan"
"""The finalizer of an owner whose dependents stay. They lose their reference to it before it goes."""
IN_HAND = 20
"""Objects that the collector of Kubernetes works on at once: of these it has asked the server already, or is about to."""
_TICK = 0.001  # seconds that are not worth to come back for


@dataclass(frozen=True, slots=True)
class Wait:
    """The collector has its head start."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Ask:
    """The claim is not there, and nobody saw it go: only the server knows whether it was released or is yet to be seen."""


@dataclass(frozen=True, slots=True)
class HeadStart:
    """Seconds that the collector has."""

    usual: float
    in_hand: float

    def of(self, sandbox: Uid, released: Iterable[Uid]) -> float:
        """`released`: all that are there still, the oldest first. These are what the collector has come to."""
        return max(self.usual, self.in_hand) if sandbox in islice(released, IN_HAND) else self.usual


def next_step(sandbox: Sandbox, *, released: bool, since: float, now: float, head_start: float) -> Wait | Ask | Delete:
    """For a sandbox of a claim that is not there. `since`: when that was first noticed; `released`: the claim is known to be gone."""
    left = since + head_start - now
    if left > _TICK:
        return Wait(left)
    return delete(SANDBOXES, sandbox.metadata, "its claim was released", pinned=True) if released else Ask()


def only_claim(sandbox: Sandbox) -> OwnerReference | None:
    """The claim that the sandbox belongs to and nobody else. One that has other owners, too, stays while any of them lives."""
    owner = extension_owner(sandbox)
    alone = owner is not None and owner.kind == SandboxClaim.kind and len(sandbox.metadata.owner_references) == 1
    return owner if alone else None


def releases(claim: Metadata) -> bool:
    """Whether what belonged to a claim goes when it is gone."""
    return ORPHAN not in claim.finalizers


def left_behind(sandbox: Uid, pods: Iterable[Pod], leaving: Callable[[Pod], bool]) -> tuple[Delete, ...]:
    """The pods that a sandbox which is gone had, and nobody else has."""
    return tuple(
        delete(PODS, pod.metadata, "its sandbox was released", pinned=True)
        for pod in pods
        if [owner.uid for owner in pod.metadata.owner_references] == [sandbox] and not leaving(pod)
    )
