"""A full pool, made without controllers: members that are ready, on many nodes, each with its pod."""

from __future__ import annotations

from typing import Any

import msgspec

from sandpool.controllers.pool.creation import blank_member, named
from sandpool.kube.api import Api
from sandpool.model.blueprint import blueprint_hash
from sandpool.model.kinds import PODS, POOLS, SANDBOXES, TEMPLATES
from sandpool.model.patches import merge_patch

NODES = 50
SINCE = "2026-01-01T00:00:00Z"
READY = {"type": "Ready", "status": "True", "reason": "DependenciesReady", "message": "", "lastTransitionTime": SINCE}


async def fill(api: Api, members: int) -> None:
    """A full pool, as it would be found after a restart."""
    pod = {"containers": [{"name": "main", "image": "python"}]}
    template = await api.create(
        TEMPLATES,
        {
            "metadata": {"name": "python"},
            "spec": {"podTemplate": {"spec": pod}, "networkPolicyManagement": "Unmanaged"},
        },
        "default",
    )
    pool = await api.create(
        POOLS,
        {"metadata": {"name": "python"}, "spec": {"replicas": members, "sandboxTemplateRef": {"name": "python"}}},
        "default",
    )
    blank = blank_member(pool, template, blueprint_hash(template.spec))
    for number in range(members):
        await _member(api, named(blank, f"python-{number:08d}"), number)


async def _member(api: Api, body: Any, number: int) -> None:
    made = await api.create(SANDBOXES, body, "default")
    name, node, address = (
        made.metadata.name,
        f"n{number % NODES}",
        f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}",
    )
    status = {"nodeName": node, "podIPs": [address], "conditions": [READY]}
    await api.patch_status(SANDBOXES, name, merge_patch({"status": status}), "default")
    owner = {
        "apiVersion": SANDBOXES.api_version,
        "kind": SANDBOXES.kind,
        "name": name,
        "uid": str(made.metadata.uid),
        "controller": True,
    }
    spec = {**msgspec.json.decode(made.spec.pod_template.spec), "nodeName": node}
    await api.create(PODS, {"metadata": {"name": name, "ownerReferences": [owner]}, "spec": spec}, "default")
    pod_status = {
        "phase": "Running",
        "podIP": address,
        "podIPs": [{"ip": address}],
        "conditions": [{"type": "Ready", "status": "True"}],
    }
    await api.patch_status(PODS, name, merge_patch({"status": pod_status}), "default")
