"""Invariants 4 and 5: how many members a pool may make, and how many a rollout may remove, by what its leader knew."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from sandpool.model.kinds import SANDBOXES
from sandpool.model.metadata import Revision
from sandpool.model.pool import SandboxWarmPool
from sandpool.simulation.invariants.knowledge import Knowledge
from sandpool.simulation.invariants.ledger import Ledger, owner_of
from sandpool.simulation.steps import Step


def within_limits(
    ledger: Ledger, step: Step, known: Mapping[str, Knowledge], began: Mapping[str, Revision]
) -> Iterator[str]:
    """`known` and `began` by leader: what it knew, and the revision that its first lists have shown."""
    if step.resource is not SANDBOXES or step.author.controller != "pool":
        return
    if step.old is None:
        yield from _created(ledger, step, known[step.author.name], began[step.author.name])
    elif step.new is None or step.new.metadata.leaving:
        left, floor = step.author.saw.left, step.author.saw.floor
        if left is not None and floor is not None and left < floor:
            yield (
                f"5: the rollout of {step.author.key} by {step.author} left {left} available members, "
                f"fewer than the {floor} that must stay"
            )


def _created(ledger: Ledger, step: Step, known: Knowledge, began: Revision) -> Iterator[str]:
    """The leader knows of the members that it made itself, and of those that existed before it began, until it knows that they are gone."""
    owner = owner_of(step.new, SandboxWarmPool.kind)
    if owner is None:
        yield f"4: {step.author} made sandbox {step.new.metadata.key} for no pool"
        return
    makers, born = ledger.makers, ledger.born
    mine = sum(1 for uid in ledger.members.get(owner.uid, ()) if makers[uid] == step.author.name or born[uid] <= began)
    limit = _limit(known.limits.get(owner.uid, []), step)
    if mine + 1 > limit:
        yield f"4: {step.author} made member {mine + 1} of pool {owner.name}, which may have {limit}"


def _limit(limits: list[tuple[float, int]], step: Step) -> int:
    """The highest limit that this leader knew of between the start of the reconcile and its call."""
    since = step.author.saw.began
    start = step.author.issued if since is None else since
    highest = 0
    for number, (at, limit) in enumerate(limits):
        ends = limits[number + 1][0] if number + 1 < len(limits) else float("inf")
        if ends >= start and at <= step.author.issued:
            highest = max(highest, limit)
    return highest
