"""Claims, templates and members for tests of controllers/claim: small, valid, and varied by keyword."""

from __future__ import annotations

from typing import Any

from conformance.bodies import claim, metadata, pod_spec, sandbox, template
from sandpool.model import labels
from sandpool.model.claim import SandboxClaim
from sandpool.model.codec import convert
from sandpool.model.kinds import CLAIMS, SANDBOXES, TEMPLATES
from sandpool.model.names import name_hash
from sandpool.model.sandbox import Sandbox
from sandpool.model.template import SandboxTemplate

POOL = {
    "apiVersion": "extensions.agents.x-k8s.io/v1beta1",
    "kind": "SandboxWarmPool",
    "name": "p",
    "uid": "pool-uid",
    "controller": True,
    "blockOwnerDeletion": True,
}
MEMBER_LABELS = {
    labels.WARM_POOL: name_hash("p"),
    labels.TEMPLATE_REF_HASH: name_hash("t"),
    labels.TEMPLATE_HASH: "12345678",
    labels.POD_TEMPLATE_HASH: "87654321",
    labels.CREATED_BY: "controller",
    labels.LAUNCH_TYPE: "warm",
}


def claim_body(*, meta: dict[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    body = claim("c", **spec)
    body["metadata"] = {"name": "c", "namespace": "default", "uid": "claim-uid", "generation": 3, **(meta or {})}
    return body


def a_claim(*, meta: dict[str, Any] | None = None, status: dict[str, Any] | None = None, **spec: Any) -> SandboxClaim:
    body = claim_body(meta=meta, **spec)
    return convert(CLAIMS, body | ({"status": status} if status is not None else {}))


def a_template(
    *, pod: dict[str, Any] | None = None, meta: dict[str, Any] | None = None, **spec: Any
) -> SandboxTemplate:
    """`pod` extends the pod spec, `meta` is the pod's metadata."""
    pod_template = {"spec": pod_spec(**(pod or {})), **({"metadata": meta} if meta else {})}
    return convert(TEMPLATES, template("t", podTemplate=pod_template, **spec))


def member_body(
    *, owners: list[dict[str, Any]] | None = None, pod_meta: dict[str, Any] | None = None, **meta: Any
) -> dict[str, Any]:
    name = meta.pop("name", "warm")
    head = {"labels": MEMBER_LABELS, "annotations": {labels.POD_NAME: name}, "ownerReferences": owners or [POOL]}
    pod_template = {"spec": pod_spec(), **({"metadata": pod_meta} if pod_meta else {})}
    return sandbox(metadata=metadata(name, **{**head, **meta}), spec={"podTemplate": pod_template})


def a_member(*, status: dict[str, Any] | None = None, **more: Any) -> Sandbox:
    body = member_body(**{"uid": "warm-uid", "namespace": "default", **more})
    return convert(SANDBOXES, body | ({"status": status} if status else {}))


def condition(
    type_: str = "Ready", status: str = "True", reason: str = "DependenciesReady", **more: Any
) -> dict[str, Any]:
    moment = "2026-01-01T00:00:00Z"
    return {"type": type_, "status": status, "reason": reason, "message": "m", "lastTransitionTime": moment, **more}
