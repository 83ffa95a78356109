"""Liveness: what must be true at the end, when faults are off, users are done, pods start, and more time has passed than anything may take."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sandpool.controllers.template.policy import policy_name
from sandpool.model.claim import SandboxClaim
from sandpool.model.conditions import find, is_true
from sandpool.model.expiry import claim_end, expired
from sandpool.model.labels import CLAIM_FIRST_READY_AT, CLAIM_UID, SANDBOX_NAME, WARM_POOL
from sandpool.model.metadata import Key, Uid
from sandpool.model.pod import Phase, Pod
from sandpool.model.pool import SandboxWarmPool, UpdateStrategyType
from sandpool.model.reasons import Reason, Type
from sandpool.model.sandbox import Sandbox, ShutdownPolicy
from sandpool.model.template import InjectionPolicy, SandboxTemplate
from sandpool.simulation.invariants.safety import stale


@dataclass(slots=True)
class Outcome:
    """The end state of a run."""

    now: datetime
    claims: dict[Key, SandboxClaim]
    sandboxes: dict[Key, Sandbox]
    pools: dict[Key, SandboxWarmPool]
    templates: dict[Key, SandboxTemplate]
    pods: dict[Key, Pod]
    others: list[Any]
    uids: set[Uid]
    free: set[Uid]  # sandboxes that may live without an owner: made so, or orphaned, by a user

    def held_by(self, claim: SandboxClaim) -> list[Sandbox]:
        return [box for box in self.sandboxes.values() if controls(claim.metadata.uid, box)]

    def members_of(self, pool: SandboxWarmPool) -> list[Sandbox]:
        return [box for box in self.sandboxes.values() if controls(pool.metadata.uid, box)]

    def template_of(self, pool: SandboxWarmPool) -> SandboxTemplate | None:
        return self.templates.get(pool.template_key)


def controls(owner: Uid, obj: Any) -> bool:
    found = obj.metadata.controller
    return found is not None and found.uid == owner


def account(end: Outcome) -> Iterator[str]:
    for claim in end.claims.values():
        yield from _claim(end, claim)
    for box in end.sandboxes.values():
        yield from _sandbox(end, box)
    for pool in end.pools.values():
        yield from _pool(end, pool)
    yield from _leaks(end)
    yield from _policies(end)
    yield from details(end)


def _claim(end: Outcome, claim: SandboxClaim) -> Iterator[str]:
    meta, held = claim.metadata, end.held_by(claim)
    ready = find(claim.status.conditions, Type.READY)
    reported = f"Ready {ready.status} {ready.reason}: {ready.message}" if ready else "no Ready condition"
    if meta.leaving:
        yield f"2: claim {meta.key} is still being deleted"
        return
    if expired(claim_end(claim), end.now):
        yield from _expired(claim, held, ready.reason if ready else "")
        return
    if len(held) > 1:
        yield f"1: claim {meta.key} still holds {len(held)} sandboxes: {', '.join(box.metadata.name for box in held)}"
    if held:
        yield from _bound(claim, held[0], reported)
    elif not _excused(end, claim, ready.reason if ready else ""):
        yield f"2: claim {meta.key} could be satisfied and is not: {reported}"


def _expired(claim: SandboxClaim, held: list[Sandbox], reason: str) -> Iterator[str]:
    lifecycle, key = claim.spec.lifecycle, claim.metadata.key
    assert lifecycle is not None
    if lifecycle.shutdown_policy != "Retain":
        yield f"10: claim {key} has expired and is still there ({lifecycle.shutdown_policy})"
    if held:
        yield f"10: claim {key} has expired and still holds sandbox {held[0].metadata.name}"
    if reason not in (Reason.CLAIM_EXPIRED, Reason.SANDBOX_EXPIRED):
        yield f"10: claim {key} has expired and says {reason or 'nothing'}"


def _bound(claim: SandboxClaim, box: Sandbox, reported: str) -> Iterator[str]:
    key, shown = claim.metadata.key, claim.status.sandbox
    if shown is None or shown.name != box.metadata.name:
        yield f"2: claim {key} holds sandbox {box.metadata.name} and shows {shown.name if shown else 'none'}"
        return
    if is_true(claim.status.conditions, Type.READY) != is_true(box.status.conditions, Type.READY):
        yield f"8: claim {key} says {reported}, its sandbox {_ready_text(box)}"
    if is_true(claim.status.conditions, Type.READY) and shown.pod_ips != box.status.pod_ips:
        yield f"8: claim {key} shows the addresses {shown.pod_ips}, its sandbox {box.status.pod_ips}"
    if is_true(claim.status.conditions, Type.READY) and shown.service_fqdn != box.status.service_fqdn:
        yield f"8: claim {key} shows the Service {shown.service_fqdn}, its sandbox {box.status.service_fqdn}"
    if is_true(claim.status.conditions, Type.FINISHED) != is_true(box.status.conditions, Type.FINISHED):
        yield f"8: claim {key} and its sandbox differ about Finished"


def _excused(end: Outcome, claim: SandboxClaim, reason: str) -> bool:
    """Whether the claim rightly has no sandbox, and its status says why."""
    return reason in tuple(_excuses(end, claim))


def _excuses(end: Outcome, claim: SandboxClaim) -> Iterator[str]:
    meta, spec = claim.metadata, claim.spec
    namesake = end.sandboxes.get(meta.key)
    if namesake is not None and not controls(meta.uid, namesake):
        yield Reason.RECONCILER_ERROR
    pool = end.pools.get(claim.pool_key)
    if pool is None:
        yield Reason.WARM_POOL_NOT_FOUND
        return
    template = end.template_of(pool)
    if template is None:
        yield Reason.TEMPLATE_NOT_FOUND
        return
    rules = template.spec
    if spec.env and rules.env_vars_injection_policy == InjectionPolicy.DISALLOWED:
        yield Reason.ENV_VARS_INJECTION_REJECTED
    if spec.volume_claim_templates and rules.volume_claim_templates_policy == InjectionPolicy.DISALLOWED:
        yield Reason.VOLUME_CLAIM_TEMPLATES_ERROR


def _sandbox(end: Outcome, box: Sandbox) -> Iterator[str]:
    meta = box.metadata
    owner = meta.controller
    if meta.leaving:
        yield f"2: sandbox {meta.key} is still being deleted"
    elif owner is None and meta.uid not in end.free:
        yield f"2: sandbox {meta.key} belongs to nobody"
    elif owner is not None and owner.uid not in end.uids:
        yield f"2: sandbox {meta.key} belongs to {owner.kind} {owner.name}, which is gone"
    pod = end.pods.get(meta.key)
    serving = pod is not None and pod.ready and bool(pod.ips) and pod.status.phase == Phase.RUNNING
    mine = pod is not None and controls(meta.uid, pod)
    running = serving and mine and not box.spec.suspended and not expired(box.spec.shutdown_time, end.now)
    if is_true(box.status.conditions, Type.READY) != running:
        yield f"8: sandbox {meta.key} says {_ready_text(box)}, its pod is {_pod(pod)}"
    elif running and pod is not None and box.status.pod_ips != pod.ips:
        yield f"8: sandbox {meta.key} shows the addresses {box.status.pod_ips}, its pod {pod.ips}"


def _pool(end: Outcome, pool: SandboxWarmPool) -> Iterator[str]:
    meta, members, template = pool.metadata, end.members_of(pool), end.template_of(pool)
    if meta.leaving:
        yield f"2: pool {meta.key} is still being deleted"
        return
    wanted = pool.spec.replicas
    if len(members) > wanted or (template is not None and len(members) < wanted):
        yield f"4: pool {meta.key} has {len(members)} members instead of {wanted}"
    status = pool.status
    ready = sum(1 for box in members if is_true(box.status.conditions, Type.READY))
    if template is not None and ready < len(members):
        late = next(box for box in members if not is_true(box.status.conditions, Type.READY))
        yield f"4: pool {meta.key} has {ready} ready members of {len(members)}; {late.metadata.name} is not"
    if (status.replicas, status.ready_replicas) != (len(members), ready):
        yield f"4: pool {meta.key} says {status.replicas} members, {status.ready_replicas} ready; it has {len(members)}, {ready}"
    if status.observed_generation != meta.generation:
        yield f"4: pool {meta.key} has observed generation {status.observed_generation} of {meta.generation}"
    if template is not None:
        yield from _rolled_out(pool, members, template)


def _rolled_out(pool: SandboxWarmPool, members: list[Sandbox], template: SandboxTemplate) -> Iterator[str]:
    old = [box for box in members if stale(box, template)]
    if old and pool.spec.strategy is not UpdateStrategyType.ON_REPLENISH:
        yield f"5: pool {pool.metadata.key} ({pool.spec.strategy}) still has the stale member {old[0].metadata.name}"
    if pool.status.updated_replicas != len(members) - len(old):
        yield f"5: pool {pool.metadata.key} says {pool.status.updated_replicas} updated; it has {len(members) - len(old)}"
    if not is_true(pool.status.conditions, Type.READY):
        condition = find(pool.status.conditions, Type.READY)
        yield f"4: pool {pool.metadata.key} is complete and says {condition.reason if condition else 'nothing'}"


def _leaks(end: Outcome) -> Iterator[str]:
    for obj in (*end.pods.values(), *end.others):
        meta = obj.metadata
        owner = meta.controller
        if owner is not None and owner.uid not in end.uids:
            yield f"2: {obj.kind} {meta.key} outlived {owner.kind} {owner.name}"
        if meta.leaving:
            yield f"2: {obj.kind} {meta.key} is still being deleted"


def _policies(end: Outcome) -> Iterator[str]:
    there = {obj.metadata.key for obj in end.others if obj.kind == "NetworkPolicy"}
    for key, template in end.templates.items():
        if template.spec.managed_network and Key(key.namespace, policy_name(key.name)) not in there:
            yield f"template {key} has no NetworkPolicy"


def _ready_text(box: Sandbox) -> str:
    ready = find(box.status.conditions, Type.READY)
    return f"Ready {ready.status} {ready.reason}: {ready.message}" if ready else "nothing"


def _pod(pod: Pod | None) -> str:
    return "absent" if pod is None else f"{pod.status.phase}, {'ready' if pod.ready else 'not ready'}, {pod.ips}"


def details(end: Outcome) -> Iterator[str]:
    for claim in end.claims.values():
        yield from _annotated(claim)
    for box in end.sandboxes.values():
        yield from _marked(end, box)
        yield from _ended(end, box)
    everything: list[Any] = [*end.claims.values(), *end.sandboxes.values()]
    for obj in everything:
        trouble = find(obj.status.conditions, Type.HEALTHY)
        if trouble is not None and not trouble.true and trouble.reason == Reason.CONTROLLER_TROUBLE:
            yield f"8: {obj.kind} {obj.metadata.key} still reports trouble that is over: {trouble.message}"


def _annotated(claim: SandboxClaim) -> Iterator[str]:
    shown = claim.status.sandbox.name if claim.status.sandbox is not None else ""
    reported = claim.metadata.annotations.get(SANDBOX_NAME, "")
    if is_true(claim.status.conditions, Type.READY) and reported != shown:
        yield f"claim {claim.metadata.key} shows sandbox {shown}, its annotation {reported or 'none'}"
    if is_true(claim.status.conditions, Type.READY) and CLAIM_FIRST_READY_AT not in claim.metadata.annotations:
        yield f"claim {claim.metadata.key} is Ready, and no second event said so: it is not annotated with when it first was"


def _marked(end: Outcome, box: Sandbox) -> Iterator[str]:
    """Reachability, eviction and metrics depend on the pod's labels."""
    pod, owner = end.pods.get(box.metadata.key), box.metadata.controller
    if pod is None or owner is None or not controls(box.metadata.uid, pod) or not pod.ready:
        return
    marks = _mark(pod, CLAIM_UID), WARM_POOL in pod.metadata.labels
    right = (owner.uid, False) if owner.kind == SandboxClaim.kind else ("", True)
    if marks != right:
        yield f"pod {pod.metadata.key} of {owner.kind} {owner.name} is marked as {marks}, not {right}"


def _mark(pod: Pod, label: str) -> str:
    return pod.metadata.labels.get(label, "")


def _ended(end: Outcome, box: Sandbox) -> Iterator[str]:
    key = box.metadata.key
    if not expired(box.spec.shutdown_time, end.now):
        return
    if box.spec.shutdown_policy == ShutdownPolicy.DELETE:
        yield f"10: sandbox {key} has expired and is still there"
        return
    ready = find(box.status.conditions, Type.READY)
    if ready is None or ready.reason != Reason.SANDBOX_EXPIRED:
        yield f"10: sandbox {key} has expired and says {ready.reason if ready else 'nothing'}"
    if key in end.pods and controls(box.metadata.uid, end.pods[key]):
        yield f"10: sandbox {key} has expired and still has a pod"
