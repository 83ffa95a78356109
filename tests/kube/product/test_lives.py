"""What pools, claims and sandboxes do, from their beginning to their end."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import yaml

from sandpool.install.rules import LEASE
from sandpool.model import times
from sandpool.model.claim import SandboxClaim
from sandpool.model.conditions import find, is_true
from sandpool.model.kinds import (
    CLAIMS,
    LEASES,
    NETWORK_POLICIES,
    PERSISTENT_VOLUME_CLAIMS,
    PODS,
    POOLS,
    SANDBOXES,
    SERVICES,
    TEMPLATES,
    raw,
)
from sandpool.model.pool import SandboxWarmPool
from sandpool.model.reasons import Type
from sandpool.model.sandbox import Sandbox
from support.kube.access import NAMESPACE
from support.kube.process import Controller
from support.kube.stage import Stage, User
from support.kube.witness import Members

pytestmark = [pytest.mark.kube, pytest.mark.timeout(300)]

HARDENING = Path(__file__).parents[3] / "docs/reference/hardening.md"
DEFAULTS = {
    "limits": {"cpu": "2", "memory": "2Gi", "ephemeral-storage": "10Gi"},
    "requests": {"cpu": "100m", "memory": "128Mi", "ephemeral-storage": "0"},
}
IMAGES = {"containers": [{"name": "main", "image": "python:3.14"}]}


async def test_one_of_two_leads_and_both_are_ready(stage: Stage, racers: list[Controller], user: User) -> None:
    async def one_leads() -> bool:
        return sum(one.leads() for one in racers) == 1

    await user.until(one_leads, "one of two leads")
    assert [one.page("/healthz") for one in racers] == [(200, "ok\n")] * 2
    assert [one.page("/readyz") for one in racers] == [(200, "ok\n")] * 2
    lease = await user.api.get(LEASES, LEASE, NAMESPACE)
    assert lease.spec.holder_identity


async def test_a_claim_gets_a_member_and_the_pool_is_filled_again(user: User) -> None:
    await user.template()
    await user.pool(4)
    await user.filled(4)
    before = {one.metadata.name for one in await user.members()}
    await user.claim("mine")
    bound = (await user.served("mine"))["mine"]
    assert bound in before
    claim: SandboxClaim = await user.get(CLAIMS, "mine")
    sandbox: Sandbox = await user.get(SANDBOXES, bound)
    assert sandbox.metadata.controller is not None
    assert sandbox.metadata.controller.uid == claim.metadata.uid
    assert claim.status.sandbox is not None
    assert claim.status.sandbox.pod_ips == sandbox.status.pod_ips != ()
    pod = await user.get(PODS, bound)
    assert pod.metadata.controller is not None
    assert pod.metadata.controller.uid == sandbox.metadata.uid
    await user.filled(4)
    await user.delete(CLAIMS, "mine")

    async def collected() -> bool:
        names = {one.metadata.name for kind in (SANDBOXES, PODS) for one in await user.all(kind)}
        return bound not in names

    await user.until(collected, "the garbage collector has taken the sandbox and its pod")


async def test_members_are_hardened(user: User) -> None:
    await user.template()
    await user.pool(1)
    await user.filled(1)
    (pod,) = await user.all(raw(PODS))
    spec = pod.body["spec"]
    assert spec["automountServiceAccountToken"] is False
    assert not [volume for volume in spec.get("volumes", []) if "projected" in volume]
    assert spec["securityContext"] == {"seccompProfile": {"type": "RuntimeDefault"}}
    assert [one["securityContext"] for one in spec["containers"]] == [{"allowPrivilegeEscalation": False}]
    assert [one["resources"] for one in spec["containers"]] == [DEFAULTS]
    assert not [one for one in spec["containers"] if one.get("volumeMounts")]
    assert spec["dnsPolicy"] == "None"  # nothing in the cluster answers it
    (policy,) = await user.all(raw(NETWORK_POLICIES))
    selected = policy.body["spec"]["podSelector"]["matchLabels"]
    assert selected.items() <= pod.metadata.labels.items()
    (way_in,) = policy.body["spec"]["ingress"]
    (router,) = way_in["from"]
    assert router["podSelector"]["matchLabels"] == {"app": "sandbox-router"}
    assert router["namespaceSelector"]["matchLabels"] == {"kubernetes.io/metadata.name": NAMESPACE}


async def test_limits_and_the_runtime_are_what_the_template_says(stage: Stage, user: User) -> None:
    """A runtime class of its own, as gVisor and Kata have: the server accepts the pod, and the class reaches the node."""
    path = "/apis/node.k8s.io/v1/runtimeclasses"
    await asyncio.to_thread(stage.server.request, "POST", path, {"metadata": {"name": "gvisor"}, "handler": "runsc"})
    limits = {"limits": {"cpu": "1", "memory": "256Mi"}, "requests": {"cpu": "100m", "memory": "64Mi"}}
    container = {"name": "main", "image": "python:3.13", "resources": limits}
    await user.create(
        TEMPLATES, "python", podTemplate={"spec": {"runtimeClassName": "gvisor", "containers": [container]}}
    )
    await user.pool(1)
    await user.filled(1)
    (pod,) = await user.all(raw(PODS))
    assert pod.body["spec"]["runtimeClassName"] == "gvisor"
    said = {part: {**DEFAULTS[part], **amounts} for part, amounts in limits.items()}
    assert pod.body["spec"]["containers"][0]["resources"] == said


async def test_bounds_of_the_namespace_are_kept_and_replace_nobody(stage: Stage, user: User) -> None:
    """As the reference says it: a LimitRange bounds what we fill in, and has nothing to add."""
    text = HARDENING.read_text().partition("      apiVersion: v1\n")[2].partition("\n\n")[0]
    limits = yaml.safe_load("      apiVersion: v1\n" + text)
    assert limits["kind"] == "LimitRange"
    path = f"/api/v1/namespaces/{user.namespace}/limitranges"
    await asyncio.to_thread(stage.server.request, "POST", path, limits)
    await user.template()
    await user.pool(1, updateStrategy={"type": "Recreate"})
    await user.filled(1)
    (before,) = await user.members()
    (pod,) = await user.all(raw(PODS))
    assert pod.body["spec"]["containers"][0]["resources"] == DEFAULTS
    await user.pool(1, name="second")  # whatever else happens meanwhile
    await user.filled(1, "second")
    (after,) = await user.members()
    assert after.metadata.uid == before.metadata.uid
    assert not [one for one in after.status.conditions if one.type == Type.POD_UP_TO_DATE]


@pytest.mark.parametrize("strategy", ["Recreate", "RollingUpdate"])
async def test_a_template_edit_rolls_the_pool(user: User, strategy: str) -> None:
    """What the members themselves are is looked at, at every step; what the pool says of it may come a moment later."""
    await user.template()
    await user.pool(6, updateStrategy={"type": strategy})
    await user.filled(6)
    await user.claim("kept")
    kept = (await user.served("kept"))["kept"]
    await user.filled(6)
    old = {one.metadata.uid for one in await user.members()}
    pool: SandboxWarmPool = await user.get(POOLS, "python")
    witness = Members(user.api, user.namespace, pool.metadata.uid)
    async with witness.watching():
        await user.edit(TEMPLATES, "python", podTemplate={"spec": IMAGES})

        async def rolled() -> bool:
            members = await user.members()
            ready = [one for one in members if is_true(one.status.conditions, Type.READY)]
            return len(ready) == len(members) == 6 and not {one.metadata.uid for one in members} & old

        await user.until(rolled, "every member is of the new template")
        # By default a quarter more may exist, rounded up, and a quarter fewer be available, rounded down.
        if strategy == "RollingUpdate":
            assert witness.fewest >= 6 - 1
            assert witness.most <= 6 + 2

        async def told() -> bool:
            status = (await user.get(POOLS, "python")).status
            return bool(status.updated_ready_replicas == status.ready_replicas == status.replicas == 6)

        await user.until(told, "the pool says so")
    pod = await user.get(raw(PODS), kept)
    assert pod.body["spec"]["containers"][0]["image"] == "python:3.13"  # what is claimed is not touched


async def test_scaling(user: User) -> None:
    await user.template()
    await user.pool(2)
    await user.filled(2)
    for replicas in (7, 3, 0):
        await user.edit(POOLS, "python", replicas=replicas)
        await user.filled(replicas)

    async def no_pods() -> bool:
        return not await user.all(PODS)

    await user.until(no_pods, "the pods of removed members are collected")


async def test_suspend_and_resume(user: User) -> None:
    await user.template()
    await user.pool(1)
    await user.claim("box")
    name = (await user.served("box"))["box"]
    pod = await user.get(PODS, name)
    await user.edit(SANDBOXES, name, operatingMode="Suspended")

    async def suspended() -> bool:
        sandbox: Sandbox = await user.get(SANDBOXES, name)
        pods = {one.metadata.name for one in await user.all(PODS)}
        return is_true(sandbox.status.conditions, Type.SUSPENDED) and name not in pods

    await user.until(suspended, "the sandbox is suspended and its pod is gone")
    claim: SandboxClaim = await user.get(CLAIMS, "box")
    assert claim.status.sandbox is not None
    assert claim.status.sandbox.name == name
    await user.edit(SANDBOXES, name, operatingMode="Running")
    assert (await user.served("box"))["box"] == name
    again = await user.get(PODS, name)
    assert again.metadata.uid != pod.metadata.uid


@pytest.mark.parametrize("policy", ["Delete", "DeleteForeground", "Retain"])
async def test_expiry(user: User, policy: str) -> None:
    await user.template()
    await user.pool(1)
    await user.filled(1)
    end = datetime.now(UTC) + timedelta(seconds=4)
    await user.claim("brief", lifecycle={"shutdownTime": times.seconds(end), "shutdownPolicy": policy})
    name = (await user.served("brief"))["brief"]

    async def over() -> bool:
        names = {one.metadata.name for kind in (SANDBOXES, PODS) for one in await user.all(kind)}
        claims = {one.metadata.name: one for one in await user.all(CLAIMS)}
        if policy == "Retain":
            ready = find(claims["brief"].status.conditions, Type.READY)
            return name not in names and ready is not None and ready.status == "False"
        return name not in names and not claims

    await user.until(over, f"the claim has ended by {policy}")
    assert datetime.now(UTC) >= end.replace(microsecond=0)


async def test_a_claim_with_its_own_environment_starts_cold(user: User) -> None:
    await user.template(envVarsInjectionPolicy="Allowed")
    await user.pool(1)
    await user.filled(1)
    members = {one.metadata.name for one in await user.members()}
    await user.claim("own", env=[{"name": "WHO", "value": "me"}])
    name = (await user.served("own"))["own"]
    assert name not in members
    pod = await user.get(raw(PODS), name)
    assert {"name": "WHO", "value": "me"} in pod.body["spec"]["containers"][0]["env"]


async def test_storage_and_a_service(user: User) -> None:
    storage = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Mi"}}}
    pod = {"spec": {"containers": [{"name": "main", "image": "python:3.13"}]}}
    await user.create(
        SANDBOXES,
        "box",
        podTemplate=pod,
        service=True,
        volumeClaimTemplates=[{"metadata": {"name": "home"}, "spec": storage}],
    )

    async def there() -> bool:
        sandbox: Sandbox = await user.get(SANDBOXES, "box")
        return is_true(sandbox.status.conditions, Type.READY)

    await user.until(there, "the sandbox is Ready")
    assert [one.metadata.name for one in await user.all(PERSISTENT_VOLUME_CLAIMS)] == ["home-box"]
    assert [one.metadata.name for one in await user.all(SERVICES)] == ["box"]
    await user.delete(SANDBOXES, "box")

    async def gone() -> bool:
        return not [one for kind in (PODS, SERVICES, PERSISTENT_VOLUME_CLAIMS) for one in await user.all(kind)]

    await user.until(gone, "what belonged to the sandbox is collected")
