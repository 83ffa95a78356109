"""Reads a view off the caches: a fixed number of lookups by name and by index, never a list."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from sandpool.controllers.assigner.facts import Member
from sandpool.controllers.claim.view import ClaimView, bound_name
from sandpool.controllers.protection import missing_policy, policy_key
from sandpool.kube.api import Preconditions
from sandpool.loop.cache import Cache
from sandpool.loop.index import controller_of
from sandpool.model.claim import SandboxClaim
from sandpool.model.core import NetworkPolicy
from sandpool.model.labels import TEMPLATE_REF
from sandpool.model.metadata import Key, Uid
from sandpool.model.pod import Node
from sandpool.model.pool import SandboxWarmPool
from sandpool.model.sandbox import Sandbox
from sandpool.model.template import GROUP, SandboxTemplate

NOBODY: frozenset[Uid] = frozenset()
_NEVER = datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Caches:
    """The caches that the claim controller reads."""

    claims: Cache[SandboxClaim]
    sandboxes: Cache[Sandbox]
    pools: Cache[SandboxWarmPool]
    templates: Cache[SandboxTemplate]
    policies: Cache[NetworkPolicy]
    nodes: Cache[Node]


class Rebinding:
    """Claims that lost their sandbox and look for another, by pool. Their status still names the one that is gone."""

    def __init__(self) -> None:
        self._pools: dict[Key, Key] = {}
        self._claims: dict[Key, dict[Key, None]] = {}

    def __contains__(self, claim: object) -> bool:
        return claim in self._pools

    def of(self, pool: Key) -> Iterable[Key]:
        return tuple(self._claims.get(pool, ()))

    def put(self, claim: Key, pool: Key) -> None:
        self.drop(claim)
        self._pools[claim] = pool
        self._claims.setdefault(pool, {})[claim] = None

    def drop(self, claim: Key) -> None:
        pool = self._pools.pop(claim, None)
        if pool is not None:
            del self._claims[pool][claim]
            if not self._claims[pool]:
                del self._claims[pool]


class Observer:
    """Builds the view of a claim from the caches, and finds the claims that an event concerns."""

    def __init__(self, caches: Caches) -> None:
        self.caches = caches
        self._owned = caches.sandboxes.index(controller_of)
        self._asking = caches.claims.index(_asks)
        self._rebinding = Rebinding()
        self._pools = caches.pools.index(lambda pool: (pool.template_key,))
        self._guarded = caches.templates.index(lambda template: (policy_key(template),))

    def view(self, key: Key, looked: str = "") -> ClaimView | None:
        """The view of a claim; None if it is not cached. `looked`: the sandbox that was just read from the server."""
        caches = self.caches
        claim = caches.claims.get(key)
        if claim is None:
            return None
        owned = _oldest_first(self._owned.get(claim.metadata.uid))
        going = [one.metadata.uid for one in owned if caches.sandboxes.leaving(one)]
        return ClaimView(
            claim=claim,
            owned=owned,
            going=frozenset(going) if going else NOBODY,
            pool=caches.pools.get(claim.pool_key),
            looked=bool(looked) and looked == bound_name(claim),
        )

    def for_start(self, view: ClaimView) -> ClaimView:
        """The same view with what a cold start depends on besides."""
        caches, pool = self.caches, view.pool
        template = None if pool is None else _staying(caches.templates.get(pool.template_key))
        return replace(
            view,
            named=caches.sandboxes.get(view.claim.metadata.key),
            template=template,
            unprotected=None if template is None else missing_policy(template, caches.policies),
        )

    def as_member(self, member: Member) -> Sandbox | None:
        """The sandbox of an assigner's member, if it is cached and still controlled by its pool."""
        sandbox = self.caches.sandboxes.get(member.key)
        owner = None if sandbox is None else sandbox.metadata.controller
        if sandbox is None or owner is None or (sandbox.metadata.uid, owner.uid) != (member.uid, member.pool):
            return None
        return sandbox

    def origin(self, sandbox: Sandbox) -> SandboxTemplate | None:
        """The template that the sandbox was made from, in its present state."""
        name = sandbox.metadata.annotations.get(TEMPLATE_REF, "")
        return self.caches.templates.get(Key(sandbox.metadata.namespace, name)) if name else None

    # Which claims an event concerns: those without a sandbox, or that lost theirs

    def searches(self, claim: SandboxClaim, *, searching: bool) -> None:
        """Records that a claim that lost its sandbox looks for another, when that is decided: an event that arrives while its status is still being
        written must wake the claim, too."""
        if searching and bound_name(claim):
            self._rebinding.put(claim.metadata.key, claim.pool_key)
        else:
            self._rebinding.drop(claim.metadata.key)

    def asking(self, pool: SandboxWarmPool) -> Collection[Key]:
        key = pool.metadata.key
        return [*(claim.metadata.key for claim in self._asking.get(key)), *self._rebinding.of(key)]

    def unserved(self) -> Iterable[SandboxClaim]:
        """All claims that show no sandbox, for a new leader."""
        return [claim for claim in self.caches.claims if not bound_name(claim) and not claim.metadata.leaving]

    def waited_for(self, claim: SandboxClaim) -> SandboxWarmPool | None:
        """The pool of a new claim that owns no sandbox yet."""
        return None if self._owned.get(claim.metadata.uid) else self.caches.pools.get(claim.pool_key)

    def wants_name(self, claim: SandboxClaim) -> bool:
        """Whether the claim may want to start a sandbox of its own name."""
        return not bound_name(claim) or claim.metadata.key in self._rebinding

    def asking_for(self, template: SandboxTemplate) -> Collection[Key]:
        return [key for pool in self._pools.get(template.metadata.key) for key in self.asking(pool)]

    def asking_behind(self, policy: NetworkPolicy) -> Collection[Key]:
        return [key for template in self._guarded.get(policy.metadata.key) for key in self.asking_for(template)]

    def owning(self, sandbox: Sandbox) -> SandboxClaim | None:
        """The living claim that controls the sandbox."""
        owner = sandbox.metadata.controller
        if owner is None or owner.kind != SandboxClaim.kind:
            return None
        claim = self.caches.claims.get(Key(sandbox.metadata.namespace, owner.name))
        return claim if claim is not None and claim.metadata.uid == owner.uid else None

    def legacy(self, claim: SandboxClaim) -> Preconditions | None:
        """The preconditions for deleting the NetworkPolicy that an earlier version left for this claim; None if there is none."""
        meta = claim.metadata
        policy = self.caches.policies.get(Key(meta.namespace, policy_name(meta.name)))
        return None if policy is None else obsolete(policy, claim)


def _asks(claim: SandboxClaim) -> tuple[Key, ...]:
    return () if bound_name(claim) or claim.metadata.leaving else (claim.pool_key,)


def _staying(template: SandboxTemplate | None) -> SandboxTemplate | None:
    """The template, unless it is being deleted."""
    return None if template is None or template.metadata.leaving else template


def _oldest_first(sandboxes: Collection[Sandbox]) -> tuple[Sandbox, ...]:
    if len(sandboxes) < 2:
        return tuple(sandboxes)
    return tuple(sorted(sandboxes, key=lambda one: (one.metadata.creation_timestamp or _NEVER, one.metadata.name)))


def policy_name(claim: str) -> str:
    return f"{claim}-network-policy"


def obsolete(policy: NetworkPolicy, claim: SandboxClaim) -> Preconditions | None:
    """The preconditions of its delete. None: it is not this claim's, or is being deleted."""
    meta, owner = policy.metadata, policy.metadata.controller
    if meta.leaving or meta.name != policy_name(claim.metadata.name) or owner is None:
        return None
    ours = (owner.group, owner.kind, owner.uid) == (GROUP, SandboxClaim.kind, claim.metadata.uid)
    return Preconditions(uid=meta.uid, revision=meta.revision) if ours else None
