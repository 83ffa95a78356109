"""What is there already is adopted, and what the controllers keep follows what it is made from."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from sandpool.install.rules import STORAGE
from sandpool.install.settings import CONTROLLER
from sandpool.model import labels
from sandpool.model.conditions import find, is_true
from sandpool.model.kinds import (
    NETWORK_POLICIES,
    PERSISTENT_VOLUME_CLAIMS,
    PODS,
    SANDBOXES,
    SERVICES,
    TEMPLATES,
)
from sandpool.model.reasons import Type
from sandpool.model.sandbox import Sandbox
from support.kube.access import NAMESPACE
from support.kube.stage import Stage, User

pytestmark = [pytest.mark.kube, pytest.mark.timeout(300)]


async def test_what_is_there_already_is_adopted_and_kept_right(stage: Stage, user: User) -> None:
    """As when this program takes over from another: nothing is made anew, nothing restarts."""
    metadata = {"labels": {labels.ADOPTABLE: "true"}}
    container = {"name": "main", "image": "python:3.13", "ports": [{"containerPort": 80}]}
    for resource, name, spec in (
        (SERVICES, "box", {"clusterIP": "None", "selector": {"app": "box"}}),
        (PODS, "box", {"containers": [container]}),
    ):
        body = {"metadata": {"name": name, **metadata}, "spec": spec}
        await user.api.create(resource, body, user.namespace)  # type: ignore[misc]
    before = await user.get(PODS, "box")
    await user.create(SANDBOXES, "box", podTemplate={"spec": {"containers": [container]}}, service=True)
    sandbox: Sandbox = await user.get(SANDBOXES, "box")

    async def ours() -> bool:
        found = [one for kind in (PODS, SERVICES) for one in await user.all(kind)]
        return [one.metadata.controller and one.metadata.controller.uid for one in found] == [sandbox.metadata.uid] * 2

    await user.until(ours, "the pod and the service belong to the sandbox")
    assert (await user.get(PODS, "box")).metadata.uid == before.metadata.uid
    await user.edit(SANDBOXES, "box", service=False)

    async def removed() -> bool:
        return not await user.all(SERVICES)

    await user.until(removed, "the service is gone")


async def test_storage_of_others_needs_more_than_we_have_where_the_cluster_is_strict(stage: Stage, user: User) -> None:
    """To become the owner of something that is there, one must be allowed to delete it. Storage we never delete: so a cluster
    that enforces this refuses the adoption, which the sandbox tells, and nobody mounts what is not theirs. Until an operator
    grants it, as `rbac.adoptStorage` of the chart does."""
    storage = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Mi"}}}
    metadata = {"name": "home-box", "labels": {labels.ADOPTABLE: "true"}}
    body = {"metadata": metadata, "spec": storage}
    await user.api.create(PERSISTENT_VOLUME_CLAIMS, body, user.namespace)
    await user.create(
        SANDBOXES,
        "box",
        podTemplate={"spec": {"containers": [{"name": "main", "image": "python:3.13"}]}},
        volumeClaimTemplates=[{"metadata": {"name": "home"}, "spec": storage}],
    )

    async def told() -> bool:
        sandbox: Sandbox = await user.get(SANDBOXES, "box")
        ready = find(sandbox.status.conditions, Type.READY)
        return ready is not None and "cannot set an ownerRef on a resource you can't delete" in ready.message

    await user.until(told, "the sandbox says why it does not start")
    assert await user.all(PODS) == []
    (storage_before,) = await user.all(PERSISTENT_VOLUME_CLAIMS)
    for path, body in granted(user.namespace):
        await asyncio.to_thread(stage.server.request, "POST", path, body)

    async def ready() -> bool:
        sandbox: Sandbox = await user.get(SANDBOXES, "box")
        return is_true(sandbox.status.conditions, Type.READY)

    await user.until(ready, "the sandbox has its storage", seconds=180)
    (adopted,) = await user.all(PERSISTENT_VOLUME_CLAIMS)
    assert adopted.metadata.uid == storage_before.metadata.uid
    assert adopted.metadata.controller is not None


def granted(namespace: str) -> list[tuple[str, dict[str, Any]]]:
    path = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}"
    account = {"kind": "ServiceAccount", "name": CONTROLLER, "namespace": NAMESPACE}
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "storage"}
    return [
        (f"{path}/roles", {"metadata": {"name": "storage"}, "rules": [rule.body() for rule in STORAGE]}),
        (f"{path}/rolebindings", {"metadata": {"name": "storage"}, "roleRef": reference, "subjects": [account]}),
    ]


async def test_the_wall_follows_the_template(user: User) -> None:
    await user.template()

    async def one_policy() -> bool:
        return len(await user.all(NETWORK_POLICIES)) == 1

    await user.until(one_policy, "the template has a policy")
    (policy,) = await user.all(NETWORK_POLICIES)
    await user.edit(TEMPLATES, "python", networkPolicy={"ingress": [], "egress": []})

    async def changed() -> bool:
        (found,) = await user.all(NETWORK_POLICIES)
        return bool(found.metadata.generation > policy.metadata.generation)

    await user.until(changed, "the policy follows")
    await user.edit(TEMPLATES, "python", networkPolicyManagement="Unmanaged")

    async def gone() -> bool:
        return not await user.all(NETWORK_POLICIES)

    await user.until(gone, "nobody manages it any more")
