"""Sandboxes, pods, Services and claims as tests of the Sandbox controller say them, and views made of them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from sandpool.controllers.sandbox.observe import Caches, Observer
from sandpool.controllers.sandbox.options import Options
from sandpool.controllers.sandbox.plan import plan_sandbox
from sandpool.controllers.sandbox.status import Trouble, expired_status, status_of
from sandpool.controllers.sandbox.steps import Change, Create, Delete, Plan
from sandpool.controllers.sandbox.view import SandboxView
from sandpool.loop.cache import Cache
from sandpool.model import codec
from sandpool.model.blueprint import pod_spec_hash
from sandpool.model.conditions import Condition, find
from sandpool.model.core import PersistentVolumeClaim, Service
from sandpool.model.kinds import CLAIMS, PERSISTENT_VOLUME_CLAIMS, PODS, POOLS, SANDBOXES, SERVICES
from sandpool.model.labels import POD_SPEC_HASH, SANDBOX_NAME_HASH, SANDBOX_UID
from sandpool.model.metadata import Object, Revision
from sandpool.model.names import name_hash
from sandpool.model.pod import Pod
from sandpool.model.resource import Resource
from sandpool.model.sandbox import Sandbox, SandboxStatus

NOW = datetime(2026, 1, 1, tzinfo=UTC)
UID = "uid-box"
HASH = name_hash("box")
TRACKING = {SANDBOX_NAME_HASH: HASH}
IDENTITY = {**TRACKING, SANDBOX_UID: UID}
"""The labels of its pod, and what its Service selects."""
OURS = {"apiVersion": "agents.x-k8s.io/v1beta1", "kind": "Sandbox", "name": "box", "uid": UID, "controller": True}
FOREIGN = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "uid-web", "controller": True}
POOL = {
    "apiVersion": "extensions.agents.x-k8s.io/v1beta1",
    "kind": "SandboxWarmPool",
    "name": "pool",
    "uid": "uid-pool",
    "controller": True,
}
CLAIM = {**POOL, "kind": "SandboxClaim", "name": "claim", "uid": "uid-claim"}
PREDECESSOR = {**OURS, "uid": "uid-earlier"}
SCHEDULED = {"type": "PodScheduled", "status": "True"}
READY = {"type": "Ready", "status": "True"}
CONTAINERS = [{"name": "main", "image": "python"}]
GONE = "2026-01-01T00:00:00Z"
Body = dict[str, Any]
MADE_FROM = {POD_SPEC_HASH: pod_spec_hash(msgspec.Raw(msgspec.json.encode({"containers": CONTAINERS})))}
"""What its pod says of the spec that it was made from."""


def _meta(name: str, metadata: Body, kind: str = "uid") -> Body:
    owner = metadata.pop("owner", None)
    owners = {"ownerReferences": [owner]} if owner else {}
    return {
        "name": name, "namespace": "default", "uid": f"{kind}-{name}", "resourceVersion": "7", **owners, **metadata,
    }  # fmt: skip


def sandbox(
    *,
    spec: Body | None = None,
    template: Body | None = None,
    containers: list[Body] | None = None,
    pod_spec: Body | None = None,
    status: SandboxStatus | None = None,
    **metadata: Any,
) -> Sandbox:
    name = metadata.pop("name", "box")
    pod_template: Body = {"spec": {"containers": containers or CONTAINERS, **(pod_spec or {})}}
    if template:
        pod_template["metadata"] = template
    body = {
        "metadata": {"generation": 3, **_meta(name, metadata)},
        "spec": {"podTemplate": pod_template, **(spec or {})},
    }
    made = codec.convert(SANDBOXES, body)
    return made if status is None else msgspec.structs.replace(made, status=status)


def pod(
    name: str = "box",
    *,
    phase: str = "Running",
    ips: tuple[str, ...] = ("10.0.0.1",),
    node: str = "n1",
    conditions: list[Body] | None = None,
    **metadata: Any,
) -> Pod:
    metadata.setdefault("owner", OURS)
    metadata.setdefault("labels", IDENTITY)
    body = {
        "metadata": _meta(name, metadata, "pod"),
        "spec": {"nodeName": node, "containers": CONTAINERS},
        "status": {
            "phase": phase,
            "podIPs": [{"ip": ip} for ip in ips],
            "conditions": [SCHEDULED, READY] if conditions is None else conditions,
        },
    }
    return codec.convert(PODS, body)


def pending(name: str = "box", **metadata: Any) -> Pod:
    return pod(name, phase="Pending", ips=(), node="", conditions=[], **metadata)


def service(
    *, cluster_ip: str = "None", selector: Body | None = None, ports: list[Body] | None = None, **metadata: Any
) -> Service:
    metadata.setdefault("owner", OURS)
    metadata.setdefault("labels", TRACKING)
    spec = {"clusterIP": cluster_ip, "selector": IDENTITY if selector is None else selector, "ports": ports or []}
    return codec.convert(SERVICES, {"metadata": _meta("box", metadata, "service"), "spec": spec})


def volume_claim(name: str = "data-box", **metadata: Any) -> PersistentVolumeClaim:
    metadata.setdefault("owner", OURS)
    return codec.convert(PERSISTENT_VOLUME_CLAIMS, {"metadata": _meta(name, metadata, "pvc"), "spec": {}})


def templates(*names: str, **metadata: Any) -> Body:
    spec = {"accessModes": ["ReadWriteOnce"]}
    return {"volumeClaimTemplates": [{"metadata": {"name": name, **metadata}, "spec": spec} for name in names]}


def owner_object(reference: Body) -> tuple[Resource[Any], Object]:
    """The pool or claim that a reference leads to."""
    kind: Resource[Any] = POOLS if reference["kind"] == "SandboxWarmPool" else CLAIMS
    spec = {"sandboxTemplateRef": {"name": "t"}, "warmPoolRef": {"name": "pool"}}
    meta = _meta(reference["name"], {"uid": reference["uid"]})
    return kind, codec.convert(kind, {"metadata": meta, "spec": spec})


def caches_of(*objects: Object) -> Caches:
    """Caches as if a list had shown just these objects."""
    kinds: tuple[Resource[Any], ...] = (SANDBOXES, PODS, SERVICES, PERSISTENT_VOLUME_CLAIMS, POOLS, CLAIMS)
    made = Caches(*(Cache(kind) for kind in kinds))
    for kind, cache in zip(
        kinds, (made.sandboxes, made.pods, made.services, made.volume_claims, made.pools, made.claims), strict=True
    ):
        cache.replace([obj for obj in objects if isinstance(obj, kind.type)], Revision(100))  # type: ignore[attr-defined]
    return made


def view_of(box: Sandbox, *objects: Object) -> SandboxView:
    """The view that the real observer makes of these objects."""
    view = Observer(caches_of(box, *objects)).view(box.metadata.key)
    assert view is not None
    return view


def plan_of(box: Sandbox, *objects: Object, now: datetime = NOW, options: Options = Options()) -> Plan:
    return plan_sandbox(view_of(box, *objects), options, now)


def verdict(
    box: Sandbox, *objects: Object, trouble: Trouble = Trouble(), options: Options = Options()
) -> SandboxStatus:
    return status_of(view_of(box, *objects), trouble, options, NOW)


def ended(box: Sandbox, trouble: Trouble = Trouble()) -> SandboxStatus:
    return expired_status(box, trouble, NOW)


def said(status: SandboxStatus, type_: str) -> tuple[str, str] | None:
    condition = find(status.conditions, type_)
    return None if condition is None else (condition.status, condition.reason)


def message(status: SandboxStatus, type_: str = "Ready") -> str:
    condition = find(status.conditions, type_)
    assert condition is not None
    return condition.message


def condition(
    type_: str, status: str, reason: str = "Because", since: datetime = NOW - timedelta(hours=1)
) -> Condition:
    return Condition(type=type_, status=status, reason=reason, message="", last_transition_time=since)


def verbs(plan: Plan) -> list[str]:
    """The steps in a few words: `create Pod box`."""
    words = {Create: "create", Change: "patch", Delete: "delete"}
    return [f"{words[type(step)]} {step.resource.kind} {step.name}" for step in plan.steps]


def body(plan: Plan, kind: str) -> Body:
    """What a plan sends to the one object of a kind: a body or a merge patch."""
    (step,) = [step for step in plan.steps if step.resource.kind == kind]
    assert not isinstance(step, Delete)
    return step.body if isinstance(step, Create) else step.patch.body
