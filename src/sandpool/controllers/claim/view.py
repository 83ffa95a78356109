"""All that the decision about one claim may depend on, read once from the caches. Everything here is a value.

Which claim owns a sandbox follows from the uid of its controlling owner and from nothing else. Which of several sandboxes is the claim's follows from
its status; if no status names one, the oldest, so that every process chooses the same.
"""

from __future__ import annotations

from dataclasses import dataclass

from sandpool.model.claim import SandboxClaim
from sandpool.model.conditions import is_true
from sandpool.model.labels import LAUNCH_TYPE, LaunchType
from sandpool.model.metadata import Uid
from sandpool.model.pool import SandboxWarmPool
from sandpool.model.reasons import Type
from sandpool.model.sandbox import Sandbox
from sandpool.model.template import SandboxTemplate


@dataclass(frozen=True, slots=True)
class ClaimView:
    """A claim with its sandboxes, pool and template, as the caches hold them."""

    claim: SandboxClaim
    owned: tuple[Sandbox, ...] = ()  # every sandbox that this claim controls, oldest first
    going: frozenset[Uid] = frozenset()  # those of them that are being deleted, or whose delete was sent
    pool: SandboxWarmPool | None = None
    looked: bool = False  # a consistent read has shown that the claim does not have the sandbox that its status names

    # Read only where a sandbox of the claim's own may be started
    named: Sandbox | None = None  # the sandbox of the claim's own name, whoever has it
    template: SandboxTemplate | None = None  # the pool's, for a new sandbox
    unprotected: str | None = None  # why no sandbox may be made from the template yet

    @property
    def bound_name(self) -> str:
        return bound_name(self.claim)

    @property
    def bound(self) -> Sandbox | None:
        """The sandbox that the status names, if the claim owns it."""
        name = self.bound_name
        return next((one for one in self.owned if name and one.metadata.name == name), None)

    @property
    def unseen(self) -> str:
        """The name of a bound sandbox that the cache does not show as the claim's. The cache may be behind."""
        return "" if self.looked or self.bound is not None else self.bound_name

    @property
    def staying(self) -> tuple[Sandbox, ...]:
        return tuple(one for one in self.owned if one.metadata.uid not in self.going)

    @property
    def chosen(self) -> Sandbox | None:
        """The sandbox that the claim has or, where its status names none, should be bound to: one that is ready, or that was taken
        from a pool, before one that is only starting; of these the oldest."""
        if (bound := self.bound) is not None:
            return bound
        suitable = [one for one in self.staying if suits(self.claim, one)]
        return min(suitable, key=_unfinished, default=None)

    @property
    def surplus(self) -> tuple[Sandbox, ...]:
        """The sandboxes that the claim owns beside the bound one. While that one is being deleted, the next one is needed."""
        bound = self.bound
        if bound is None or bound.metadata.uid in self.going:
            return ()
        return tuple(one for one in self.staying if one is not bound)


def bound_name(claim: SandboxClaim) -> str:
    return claim.status.sandbox.name if claim.status.sandbox is not None else ""


def suits(claim: SandboxClaim, sandbox: Sandbox) -> bool:
    """Whether the sandbox can serve the claim: a warm one cannot have variables or storage of a claim."""
    return not (claim.spec.customised and warm(sandbox))


def _unfinished(sandbox: Sandbox) -> tuple[bool, bool]:
    return not is_true(sandbox.status.conditions, Type.READY), not warm(sandbox)


def warm(sandbox: Sandbox) -> bool:
    return sandbox.metadata.labels.get(LAUNCH_TYPE) == LaunchType.WARM
