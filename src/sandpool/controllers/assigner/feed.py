"""Feeds the assigner from the caches: members, pools, whether their templates exist, nodes that are drained.

An event is reduced to what the assigner reads; if nothing of that changed, the assigner is not called. Claims that should ask again go to `wake`.
Connect it before the claims' own triggers, so that a claim that is woken finds the assigner up to date.
Deletes of our own do not come this way: the pool controller withdraws a member before it deletes it, and restores it if the delete fails.
"""

from __future__ import annotations

from collections.abc import Callable

from sandpool.controllers.assigner.assigner import Assigner
from sandpool.controllers.assigner.facts import Member, Woken, member_of, owning_pool, pool_of
from sandpool.controllers.assigner.staleness import Staleness
from sandpool.loop.cache import Cache
from sandpool.loop.index import controller_of
from sandpool.model import labels
from sandpool.model.conditions import is_true
from sandpool.model.metadata import Uid
from sandpool.model.pod import Node
from sandpool.model.pool import SandboxWarmPool
from sandpool.model.reasons import Type
from sandpool.model.sandbox import Sandbox
from sandpool.model.template import SandboxTemplate

GOING = ("ToBeDeletedByClusterAutoscaler", "karpenter.sh/disrupted")
"""Taints by which autoscalers announce that a node is about to go."""
UNWELL = "node.kubernetes.io/"
"""With the effect NoExecute, taints of this domain say that a node does not answer. Other taints may only reserve it for some pods."""
_MARKS = (labels.WARM_POOL, labels.TEMPLATE_REF_HASH, labels.TEMPLATE_HASH)


class Feed:
    """Subscribes the assigner to the caches."""

    def __init__(
        self,
        assigner: Assigner,
        staleness: Staleness,
        sandboxes: Cache[Sandbox],
        pools: Cache[SandboxWarmPool],
        templates: Cache[SandboxTemplate],
        nodes: Cache[Node],
        wake: Callable[[Woken], object],
    ) -> None:
        self._assigner = assigner
        self._staleness = staleness
        self._sandboxes, self._pools, self._templates, self._nodes = sandboxes, pools, templates, nodes
        self._wake = wake
        self._members = sandboxes.index(controller_of)
        self._users = pools.index(lambda pool: (pool.template_key,))

    def connect(self) -> None:
        self._templates.subscribe(self._template)
        self._pools.subscribe(self._pool)
        self._nodes.subscribe(self._node)
        self._sandboxes.subscribe(self._sandbox)

    def member(self, sandbox: Sandbox) -> Member | None:
        """The sandbox as the assigner should know it; None if it is no member."""
        return member_of(sandbox, stale=self._staleness.stale(sandbox))

    def _sandbox(self, old: Sandbox | None, new: Sandbox | None) -> None:
        if new is None:
            if old is not None and owning_pool(old) is not None:
                self._gone(old, None)
            return
        if old is not None and _facts(old) == _facts(new):
            return
        if (member := self.member(new)) is not None:
            self._wake_claims(self._assigner.put_member(member))
        elif old is not None and owning_pool(old) is not None:
            owner = new.metadata.controller
            self._gone(old, None if owner is None else owner.uid)

    def _gone(self, sandbox: Sandbox, taker: Uid | None) -> None:
        self._wake_claims(self._assigner.drop_member(sandbox.metadata.uid, taker=taker))
        self._staleness.forget(sandbox.metadata.uid)

    def _pool(self, old: SandboxWarmPool | None, new: SandboxWarmPool | None) -> None:
        if new is None:
            if old is not None:
                self._wake_claims(self._assigner.drop_pool(old.metadata.uid))
                self._refeed(old)
        elif old is None or old.spec.sandbox_template_ref != new.spec.sandbox_template_ref:
            self._judge(new)
        elif _pool_facts(old) != _pool_facts(new):
            self._put_pool(new)

    def _template(self, old: SandboxTemplate | None, new: SandboxTemplate | None) -> None:
        template = new if new is not None else old
        if template is not None and self._blueprint(old) != self._blueprint(new):
            for pool in self._users.get(template.metadata.key):
                self._judge(pool)

    def _node(self, old: Node | None, new: Node | None) -> None:
        before, after = old is not None and draining(old), new is not None and draining(new)
        node = new if new is not None else old
        if node is not None and before != after:
            self._wake_claims(self._assigner.drain(node.metadata.name, after))

    def _judge(self, pool: SandboxWarmPool) -> None:
        """The pool has another template, or none. The order of the two updates matters: at no moment is a member offered that neither the
        old nor the new template allows."""
        if self._staleness.template_of(pool) is None:
            self._put_pool(pool)
            self._refeed(pool)
        else:
            self._refeed(pool)
            self._put_pool(pool)

    def _refeed(self, pool: SandboxWarmPool) -> None:
        """Judges every member of the pool anew."""
        for sandbox in tuple(self._members.get(pool.metadata.uid)):
            if (member := self.member(sandbox)) is not None:
                self._wake_claims(self._assigner.put_member(member))

    def _put_pool(self, pool: SandboxWarmPool) -> None:
        known = self._staleness.template_of(pool) is not None
        self._wake_claims(self._assigner.put_pool(pool_of(pool, template_known=known)))

    def _blueprint(self, template: SandboxTemplate | None) -> tuple[Uid, str] | None:
        if template is None or template.metadata.leaving:
            return None
        return template.metadata.uid, self._staleness.blueprint(template)

    def _wake_claims(self, woken: Woken) -> None:
        if woken:
            self._wake(woken)


def draining(node: Node) -> bool:
    """Cordoned, or about to be drained: what runs there will not run for long."""
    return node.spec.unschedulable or any(
        taint.key in GOING or (taint.effect == "NoExecute" and taint.key.startswith(UNWELL))
        for taint in node.spec.taints
    )


def _facts(sandbox: Sandbox) -> object:
    meta, status = sandbox.metadata, sandbox.status
    owner = meta.controller
    ready = is_true(status.conditions, Type.READY) and bool(status.pod_ips)
    marks = tuple(map(meta.labels.get, _MARKS))
    return (None if owner is None else owner.uid), meta.generation, meta.leaving, marks, status.node_name, ready


def _pool_facts(pool: SandboxWarmPool) -> object:
    return pool.metadata.leaving, pool.spec.strategy, pool.spec.sandbox_template_ref, pool.spec.replicas
