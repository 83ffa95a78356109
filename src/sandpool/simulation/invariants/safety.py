"""Safety: what must never be true, judged at every change. Each judge looks at one kind and yields sentences that name the invariant."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from sandpool.model.blueprint import follows
from sandpool.model.claim import SandboxClaim
from sandpool.model.conditions import is_true
from sandpool.model.container_defaults import STANDARD
from sandpool.model.expiry import claim_end, expired, sandbox_end
from sandpool.model.kinds import CLAIMS, SANDBOXES
from sandpool.model.labels import CONTROLLER_FIRST_OBSERVED_AT, SANDBOX_NAME, TEMPLATE_REF_HASH
from sandpool.model.metadata import OwnerReference
from sandpool.model.names import name_hash
from sandpool.model.pool import SandboxWarmPool, UpdateStrategyType
from sandpool.model.reasons import Type
from sandpool.model.sandbox import Sandbox
from sandpool.model.template import SandboxTemplate
from sandpool.simulation.invariants.ledger import Ledger, moment, owner_of
from sandpool.simulation.steps import Author, Step

CLAIM, POOL = SandboxClaim.kind, SandboxWarmPool.kind
Judge = Callable[[Ledger, Step], Iterator[str]]


def same_object(ledger: Ledger, step: Step) -> Iterator[str]:
    """A write that was planned for one object must not change another one of its name."""
    planned = step.author.saw.object
    if planned is None or step.old is None:
        return
    meant, met = planned.metadata, step.old.metadata
    if meant.key == met.key and meant.uid != met.uid and type(planned) is type(step.old):
        yield f"uid: {step.author} planned a write for {meant.key} of uid {meant.uid}, and it changed the one of uid {met.uid}"


def one_owner(ledger: Ledger, step: Step) -> Iterator[str]:
    """1: never two controlling owners, and a claim's sandbox is never handed on. 7: nor across namespaces."""
    if step.resource is not SANDBOXES or step.new is None:
        return
    box: Sandbox = step.new
    name = box.metadata.key
    if sum(1 for owner in box.metadata.owner_references if owner.controller) > 1:
        yield f"1: sandbox {name} has two controlling owners"
    before, after = _controller(step.old), box.metadata.controller
    if after is None or (before is not None and before.uid == after.uid):
        return
    if before is not None and before.kind == CLAIM:
        yield f"1: sandbox {name} of claim {before.name} was handed on to {after.kind} {after.name} by {step.author}"
    home = ledger.homes.get(after.uid)
    if home is not None and home != box.metadata.namespace:
        yield f"7: sandbox {name} was given to {after.kind} {after.name} of namespace {home}"
    if after.kind == CLAIM and before is not None and before.kind == POOL:
        yield from _transferred(ledger, step, box, before, after)


def _transferred(
    ledger: Ledger, step: Step, box: Sandbox, pool: OwnerReference, taker: OwnerReference
) -> Iterator[str]:
    claim = ledger.claims.get(taker.uid)
    name = box.metadata.key
    if claim is not None:
        if claim.spec.customised:
            yield f"6: claim {claim.metadata.key} asks for env or volumes and got the warm sandbox {name}"
        if claim.spec.warm_pool_ref.name != pool.name:
            yield f"7: claim {claim.metadata.key} got sandbox {name} of pool {pool.name}, which it did not ask"
    yield from _fresh(step.author, box)


def _fresh(who: Author, box: Sandbox) -> Iterator[str]:
    """5: as its leader knew the pool and the template when it asked for the transfer."""
    pool = who.saw.pool
    if pool is None or pool.spec.strategy is UpdateStrategyType.ON_REPLENISH:
        return
    template, name = who.saw.template, box.metadata.key
    if template is None or template.metadata.leaving:
        yield f"5: sandbox {name} was handed out under {pool.spec.strategy} by {who}, who knew that its template is gone"
    elif pool.spec.strategy is UpdateStrategyType.RECREATE and stale(box, template):
        yield f"5: sandbox {name} was handed out under Recreate by {who}, who knew that it was stale"


def stale(box: Sandbox, template: SandboxTemplate) -> bool:
    """Whether the sandbox is stale, with the default container defaults, which simulated controllers use."""
    meta, spec = template.metadata, template.spec
    return box.metadata.labels.get(TEMPLATE_REF_HASH) != name_hash(meta.name) or not follows(box.spec, spec, STANDARD)


def claimed_is_sacred(ledger: Ledger, step: Step) -> Iterator[str]:
    """3: a claimed sandbox is never touched by its pool, its template or a rollout, nor taken from a claim that lives."""
    if step.resource is not SANDBOXES or step.old is None:
        return
    owner = owner_of(step.old, CLAIM)
    if owner is None:
        return
    name = step.old.metadata.key
    if step.author.controller in ("pool", "template"):
        yield f"3: sandbox {name} of claim {owner.name} was written to by {step.author}"
    if step.author.controller == "claim" and _leaves(step):
        claim = ledger.claims.get(owner.uid)
        if claim is None or claim.metadata.leaving or claim.status.sandbox is None:
            return
        if ledger.edited.get(owner.uid, -1.0) >= _began(step):
            return  # more time was given after it had looked: no write can test two objects at once
        if claim.status.sandbox.name == name.name and not expired(claim_end(claim), moment(step.at)):
            yield f"3: sandbox {name}, which claim {owner.name} shows to its user, was deleted by {step.author}"


def one_gift(ledger: Ledger, step: Step) -> Iterator[str]:
    """1: a leader that has got a claim a sandbox does not get it another one while that one lives. A member may come before one that it
    began to start for the claim, and that nobody knows of yet: also where the claim still shows a third one, which it has lost."""
    taker = owner_of(step.new, CLAIM) if step.resource is SANDBOXES and step.author.controller == "claim" else None
    if taker is None or owner_of(step.old, CLAIM) is not None:
        return
    claim = step.author.saw.claim or ledger.claims.get(
        taker.uid
    )  # as it was when this was decided: writes may land late
    held = tuple(ledger.held_by(taker.uid))
    served = claim is not None and any(box.metadata.name == _shown(claim) for box in held)
    for box in held:
        if claim is not None and box.metadata.name == taker.name and step.old is not None and not served:
            continue
        if ledger.givers.get(box.metadata.uid) == step.author.name and not box.metadata.leaving:
            yield (
                f"1: {step.author} got claim {step.new.metadata.namespace}/{taker.name} sandbox {step.new.metadata.key}, "
                f"although it had got it {box.metadata.key} before"
            )


def one_publication(ledger: Ledger, step: Step) -> Iterator[str]:
    """1: a claim shows only its own sandbox, and never another while that one lives."""
    if step.resource is not CLAIMS or step.new is None:
        return
    claim: SandboxClaim = step.new
    shown, before = _shown(claim), _shown(step.old)
    if not shown or shown == before:
        return
    meta = claim.metadata
    if shown not in ledger.ever_held.get(meta.uid, {}):
        yield f"1: claim {meta.key} shows sandbox {shown}, which was never its own"
    if before:
        for box in ledger.held_by(meta.uid):
            if box.metadata.name == before and not box.metadata.leaving:
                yield f"1: claim {meta.key} showed sandbox {before}, which still lives, and now shows {shown}"


def cold_when_ready(ledger: Ledger, step: Step) -> Iterator[str]:
    """Order: what a claim started for itself while members may come is not shown before it is ready, or has ended. Whether any may come
    is what the leader knew when it decided to show it: the claim's annotations are written first, and a pool may appear meanwhile."""
    pool, claim = step.author.saw.pool, step.new
    if step.resource is not CLAIMS or claim is None or pool is None or _shown(claim) == _shown(step.old):
        return
    if claim.spec.customised or not pool.spec.replicas or pool.metadata.leaving or _shown(claim) != claim.metadata.name:
        return
    for box in ledger.held_by(claim.metadata.uid):
        if box.metadata.name == claim.metadata.name and box.metadata.uid not in ledger.ripe and not box.spec.suspended:
            yield f"order: claim {claim.metadata.key} shows its cold sandbox, which never was ready, by {step.author}"


def named_before_ready(ledger: Ledger, step: Step) -> Iterator[str]:
    """A claim is said to be Ready only once its annotations say which sandbox it has, and when it was first seen. If two leaders serve it
    at once, the annotations may name what the other one wanted for a moment: no lock can prevent that, and it is put right."""
    if step.resource is not CLAIMS or step.new is None or step.author.controller != "claim" or _ready(step.old):
        return
    claim: SandboxClaim = step.new
    if not _ready(claim):
        return
    annotations, shown = claim.metadata.annotations, _shown(claim)
    mine = ledger.namers.get(claim.metadata.uid, step.author.name) == step.author.name
    if (annotations.get(SANDBOX_NAME) != shown and mine) or not annotations.get(CONTROLLER_FIRST_OBSERVED_AT):
        yield (
            f"annotations: claim {claim.metadata.key} is Ready with sandbox {shown}, says {step.author}; its annotations say "
            f"{annotations.get(SANDBOX_NAME, 'none')}, first seen {annotations.get(CONTROLLER_FIRST_OBSERVED_AT, 'never')}"
        )


def not_early(ledger: Ledger, step: Step) -> Iterator[str]:
    """10: nothing is ended before its time."""
    if step.author.controller not in ("sandbox", "claim") or not _leaves(step):
        return
    now = moment(step.at)
    ended = step.resource is SANDBOXES and (expired(sandbox_end(step.old), now) or _released(ledger, step.old))
    if step.resource is SANDBOXES and step.author.controller == "sandbox" and not ended:
        yield f"10: sandbox {step.old.metadata.key} was deleted by {step.author} before its time"
    if step.resource is CLAIMS and not expired(claim_end(step.old), now):
        yield f"10: claim {step.old.metadata.key} was deleted by {step.author} before its time"


def _released(ledger: Ledger, box: Sandbox) -> bool:
    """It belongs to a claim that is gone, and to nobody else."""
    owner = owner_of(box, CLAIM)
    return owner is not None and owner.uid not in ledger.claims and len(box.metadata.owner_references) == 1


def nothing_after_the_end(ledger: Ledger, step: Step) -> Iterator[str]:
    """10: a claim that had expired when its reconcile began gets no sandbox any more."""
    taker = owner_of(step.new, CLAIM) if step.resource is SANDBOXES else None
    claim = step.author.saw.claim
    if taker is None or claim is None or claim.metadata.uid != taker.uid or owner_of(step.old, CLAIM) is not None:
        return
    if expired(claim_end(claim), moment(_began(step))):
        yield f"10: claim {claim.metadata.key} had expired when {step.author} got it a sandbox"


def _began(step: Step) -> float:
    began = step.author.saw.began
    return step.author.issued if began is None else began


def _leaves(step: Step) -> bool:
    """Whether this step deletes it or marks it for deletion."""
    if step.old is None or step.old.metadata.leaving:
        return False
    return step.new is None or step.new.metadata.leaving


def _controller(box: Sandbox | None) -> OwnerReference | None:
    return box.metadata.controller if box is not None else None


def _ready(claim: SandboxClaim | None) -> bool:
    return claim is not None and is_true(claim.status.conditions, Type.READY)


def _shown(claim: SandboxClaim | None) -> str:
    return claim.status.sandbox.name if claim is not None and claim.status.sandbox is not None else ""


JUDGES: tuple[Judge, ...] = (
    same_object,
    one_owner,
    one_gift,
    claimed_is_sacred,
    one_publication,
    cold_when_ready,
    named_before_ready,
    not_early,
    nothing_after_the_end,
)
