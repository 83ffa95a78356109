"""What a leader knew when it asked for a write: an invariant about a decision must not use what came later.

Noted when the request leaves, as references into the leader's own caches; nothing is copied.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from sandpool.model.claim import SandboxClaim
from sandpool.model.conditions import is_true
from sandpool.model.labels import POD_NAME
from sandpool.model.metadata import Key, Uid
from sandpool.model.pool import RollingUpdate, SandboxWarmPool, UpdateStrategyType, rolling_bounds
from sandpool.model.reasons import Type
from sandpool.model.resource import Resource
from sandpool.model.sandbox import Sandbox
from sandpool.simulation.steps import Author

if TYPE_CHECKING:
    from sandpool.app.controllers import Caches
    from sandpool.simulation.leader import Leader


@dataclass(slots=True)
class Rollout:
    """The available members that a pool's reconcile saw when it made its first call, without those that it deletes."""

    available: dict[Uid, None]


@dataclass(slots=True)
class Knowledge:
    """What one leader knows and has done."""

    limits: dict[Uid, list[tuple[float, int]]] = field(
        default_factory=dict
    )  # by pool: how many it may have, since when
    began: dict[str, float] = field(default_factory=dict)  # by rid: when its first call left
    rollouts: dict[str, Rollout] = field(default_factory=dict)  # by rid
    gone: dict[Uid, None] = field(default_factory=dict)  # what it deleted, as confirmed by an answer
    caches: dict[Any, Any] = field(default_factory=dict)  # its own, by resource
    binding: dict[Uid, SandboxWarmPool | None] = field(default_factory=dict)  # claims being bound: their pools


def follow(leader: Leader, now: Any) -> Knowledge:
    """Follows what the leader observes about pools, and its bindings."""
    knowledge = Knowledge(caches={cache.resource: cache for cache in leader.controllers.caches.all()})

    def learned(_: SandboxWarmPool | None, new: SandboxWarmPool | None) -> None:
        if new is not None:
            limits = knowledge.limits.setdefault(new.metadata.uid, [])
            if not limits or limits[-1][1] != limit_of(new):
                limits.append((now(), limit_of(new)))

    leader.controllers.caches.pools.subscribe(learned)
    _follow_bindings(leader, knowledge)
    return knowledge


def _follow_bindings(leader: Leader, knowledge: Knowledge) -> None:
    """A binding is several calls. What it was decided on is what was known before the first of them."""
    work, pools = leader.controllers.claim._applier, leader.controllers.caches.pools
    bind = work._bind

    async def binding(claim: SandboxClaim, sandbox: Sandbox) -> Any:
        meta = claim.metadata
        knowledge.binding[meta.uid] = pools.get(claim.pool_key)
        try:
            return await bind(claim, sandbox)
        finally:
            del knowledge.binding[meta.uid]

    work._bind = binding  # type: ignore[method-assign]


def limit_of(pool: SandboxWarmPool) -> int:
    """Replicas, and what the strategy lets it have beyond them during a rollout."""
    return pool.spec.replicas + (
        bounds_of(pool).surge if pool.spec.strategy is UpdateStrategyType.ROLLING_UPDATE else 0
    )


def bounds_of(pool: SandboxWarmPool) -> Any:
    strategy = pool.spec.update_strategy
    rolling = (strategy.rolling_update if strategy is not None else None) or RollingUpdate()
    return rolling_bounds(rolling.max_unavailable, rolling.max_surge, pool.spec.replicas)


def note(
    leader: Leader, knowledge: Knowledge, who: Author, verb: str, resource: Resource[Any], name: str, namespace: str
) -> None:
    """Records what the leader knows when it sends a request."""
    caches = leader.controllers.caches
    began = knowledge.began.setdefault(who.rid, who.issued)
    who.saw.began = began
    key = Key(namespace, name)
    if verb != "create":
        cache = knowledge.caches.get(resource)
        known = who.saw.object = cache.get(key) if cache is not None else None
        if isinstance(known, Sandbox):
            _note_sandbox(caches, who, known)
        elif isinstance(known, SandboxClaim):
            bound = known.status.sandbox.name if known.status.sandbox is not None else ""
            who.saw.box = caches.sandboxes.get(Key(namespace, bound)) if bound else None
            now = caches.pools.get(known.pool_key)
            who.saw.pool = knowledge.binding.get(known.metadata.uid, now)
    if who.controller == "pool" and who.key is not None:
        _note_rollout(leader, knowledge, who, verb)
    elif who.controller == "claim" and who.key is not None:
        who.saw.claim = caches.claims.get(who.key)


def answered(knowledge: Knowledge, who: Author, verb: str, answer: object) -> None:
    """Called when the answer to a request reached the leader."""
    known = who.saw.object
    if verb == "delete" and answer is None and known is not None:
        knowledge.gone[known.metadata.uid] = None


def forgotten(knowledge: Knowledge, who: Author) -> str:
    """Read your own writes: a leader never writes to what it has itself deleted."""
    known = who.saw.object
    if known is None or known.metadata.uid not in knowledge.gone:
        return ""
    return f"own writes: {who} writes to {known.metadata.key}, which it has itself deleted"


def _note_sandbox(caches: Caches, who: Author, box: Sandbox) -> None:
    meta = box.metadata
    owner = meta.controller
    if owner is not None and owner.kind == SandboxWarmPool.kind:
        pool = caches.pools.get(Key(meta.namespace, owner.name))
        if pool is not None and pool.metadata.uid == owner.uid:
            who.saw.pool = pool
            who.saw.template = caches.templates.get(pool.template_key)
    pod = meta.annotations.get(POD_NAME) or meta.name
    who.saw.pod = caches.pods.get(Key(meta.namespace, pod))
    who.saw.service = caches.services.get(meta.key)


def _note_rollout(leader: Leader, knowledge: Knowledge, who: Author, verb: str) -> None:
    assert who.key is not None
    caches = leader.controllers.caches
    pool = caches.pools.get(who.key)
    if pool is None or pool.spec.strategy is not UpdateStrategyType.ROLLING_UPDATE:
        return
    rollout = knowledge.rollouts.get(who.rid)
    if rollout is None:
        ready = (box for box in caches.sandboxes if _available(knowledge, box, pool.metadata.uid))
        rollout = knowledge.rollouts[who.rid] = Rollout({box.metadata.uid: None for box in ready})
    box = who.saw.object
    if verb == "delete" and isinstance(box, Sandbox) and box.metadata.uid in rollout.available:
        del rollout.available[box.metadata.uid]
        who.saw.left = len(rollout.available)
        who.saw.floor = pool.spec.replicas - bounds_of(pool).unavailable


def _available(knowledge: Knowledge, box: Sandbox, pool: Uid) -> bool:
    owner = box.metadata.controller
    if owner is None or owner.uid != pool or not is_ready(box):
        return False
    return not box.metadata.leaving and box.metadata.uid not in knowledge.gone


def is_ready(box: Sandbox) -> bool:
    return is_true(box.status.conditions, Type.READY) and bool(box.status.pod_ips)
