"""A claim that is served in the write that creates it: what a server and the controllers in its own process say to each other.

A server that holds the controllers itself need not store a claim, tell them of it and wait for two more writes. It asks, and stores what they answer
together with the claim: all of it or nothing. A cluster whose controllers are elsewhere has nobody to ask, and
a claim that cannot be served outright is stored as it is; then everything goes the usual way.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

from sandpool.model.claim import SandboxClaim
from sandpool.model.metadata import Key, Revision
from sandpool.model.patches import Patch
from sandpool.model.sandbox import Sandbox


class Grant(Protocol):
    """A sandbox that is kept for one claim until one of `landed` and `dropped` is called, once."""

    sandbox: Key
    revision: Revision  # of the sandbox as it was when this was decided; of any other state it is not true
    transfer: Patch  # makes the sandbox the claim's
    status: Mapping[str, Any]  # of the claim, as JSON
    annotations: Mapping[str, str]  # which the claim gets besides

    def decided(self, created: Revision, taken: Revision, bound: Revision) -> None:
        """It is on its way to the disk, as these revisions: of the claim as it was sent, of the sandbox, of the claim that has it."""
        ...

    def landed(self, claim: SandboxClaim, sandbox: Sandbox) -> None:
        """Both are durable; these are their last states."""
        ...

    def dropped(self) -> None:
        """Nothing of it was written, or nothing is left of it."""
        ...


class Busy(NamedTuple):
    """Too many claims wait already: this one is not stored."""

    retry_after: int  # seconds
    why: str


class Granter(Protocol):
    def grant(self, claim: SandboxClaim) -> Grant | None:
        """For a claim that is about to be created and has everything but a revision. None: not now, or not this one."""
        ...

    def pause(self, pool: Key) -> float:
        """Seconds that a claim of this pool which was just sent has to wait before it is looked at."""
        ...

    def no_pause(self, pool: Key) -> Busy | None:
        """In the place of `pause`, for a claim that nobody can keep waiting any more: when to come back. None: it need not wait."""
        ...

    def busy(self, claim: SandboxClaim) -> Busy | None:
        """Whether a claim that was granted nothing has to come back later. None: it may be stored, and wait."""
        ...

    def noted(self, claim: SandboxClaim) -> Mapping[str, str]:
        """The annotations of a claim that is stored and has to wait: by them its place in line outlasts this process."""
        ...
