"""What a cluster refuses is told on the object and does not lead to a storm of retries."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from sandpool.install.settings import CONTROLLER
from sandpool.model.conditions import find
from sandpool.model.kinds import CLAIMS, PODS, POOLS
from sandpool.model.reasons import Type
from support.kube.access import USER
from support.kube.process import Controller
from support.kube.stage import Stage, User
from support.kube.webhook import a_webhook

ROLES = "/apis/rbac.authorization.k8s.io/v1/clusterroles"
MERGE = "application/merge-patch+json"
pytestmark = [pytest.mark.kube, pytest.mark.timeout(300)]


async def test_a_quota_is_told_and_does_not_lead_to_a_storm(stage: Stage, user: User) -> None:
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "few"}, "spec": {"hard": {"pods": "2"}}}
    path = f"/api/v1/namespaces/{user.namespace}/resourcequotas"
    await asyncio.to_thread(stage.server.request, "POST", path, quota)

    async def counted() -> bool:
        listed = await asyncio.to_thread(stage.server.request, "GET", path)
        return "hard" in listed["items"][0].get("status", {})

    await user.until(counted, "the quota is counted")
    audit = stage.audit
    audit.mark()
    await user.template()
    await user.pool(5)

    async def told() -> bool:
        refused = [
            ready
            for one in await user.sandboxes()
            if (ready := find(one.status.conditions, Type.READY)) and "exceeded quota" in ready.message
        ]
        return len(refused) == 3

    await user.until(told, "three sandboxes say that the quota is exceeded")
    await asyncio.sleep(8)  # long enough for a storm
    tries = audit.refused(USER, user.namespace)
    assert set(tries) == {"create pods 403"}
    assert tries["create pods 403"] <= 3 * 6  # doubling from a second: 0, 1, 3, 7, 15
    await user.edit(POOLS, "python", replicas=2)
    await user.filled(2)


async def test_a_webhook_that_refuses_is_told_and_does_not_lead_to_a_storm(
    stage: Stage, user: User, tmp_path: Path
) -> None:
    async def deny(asked: dict[str, Any]) -> str:
        return "no pods on Sundays"

    async with a_webhook(stage, user, tmp_path, PODS, deny):
        audit = stage.audit
        audit.mark()
        await user.template()
        await user.pool(3)

        async def told() -> bool:
            ready = [find(one.status.conditions, Type.READY) for one in await user.sandboxes()]
            return len(ready) == 3 and all(one is not None and "no pods on Sundays" in one.message for one in ready)

        await user.until(told, "all sandboxes say why they have no pod")
        await asyncio.sleep(8)  # long enough for a storm
        tries = audit.refused(USER, user.namespace)
        assert sum(tries.values()) <= 3 * 6, tries  # doubling from a second: 0, 1, 3, 7, 15
    await user.filled(3)


async def test_a_permission_that_is_taken_away_is_told_outside_the_log(
    stage: Stage, racers: list[Controller], user: User
) -> None:
    """The status cannot say it: an Event does, which `sandpool why` shows, and a metric."""
    await user.template()
    await user.pool(1)
    await user.filled(1)
    role = f"{ROLES}/{CONTROLLER}"
    rules = (await asyncio.to_thread(stage.server.request, "GET", role))["rules"]
    less = [rule for rule in rules if "sandboxclaims/status" not in rule["resources"]]
    assert len(less) < len(rules)
    await asyncio.to_thread(stage.server.request, "PATCH", role, {"rules": less}, MERGE)
    try:
        await user.create(CLAIMS, "mine", warmPoolRef={"name": "python"})
        (leader,) = [one for one in racers if one.leads()]
        where = (f"--namespace={user.namespace}", f"--kubeconfig={stage.server.kubeconfig}")
        command = [sys.executable, "-m", "sandpool", "why", "claim/mine", *where]

        async def told() -> bool:
            done = await asyncio.to_thread(
                subprocess.run, command, capture_output=True, text=True, timeout=60, check=False
            )
            return "StatusRefused: The status is not up to date" in done.stdout

        await user.until(told, "`sandpool why` shows the Event")
        sample = 'sandpool_status_refused{resource="sandboxclaims.extensions.agents.x-k8s.io"} 1.0'
        assert sample in leader.page("/metrics")[1].splitlines()
    finally:
        await asyncio.to_thread(stage.server.request, "PATCH", role, {"rules": rules}, MERGE)
    await user.served("mine")


async def test_a_namespace_that_ends_takes_everything_along(stage: Stage, user: User) -> None:
    await user.template()
    await user.pool(5)
    await user.claim("mine")
    await user.served("mine")
    await user.filled(5)
    audit = stage.audit
    audit.mark()
    await asyncio.to_thread(stage.server.request, "DELETE", f"/api/v1/namespaces/{user.namespace}")

    async def ended() -> bool:
        spaces = await asyncio.to_thread(stage.server.request, "GET", "/api/v1/namespaces")
        return user.namespace not in {one["metadata"]["name"] for one in spaces["items"]}

    await user.until(ended, "the namespace is gone")
    refused = audit.refused(USER, user.namespace)
    assert sum(refused.values()) <= 3 * 6, refused  # of each sandbox perhaps its pod, its replacement and an Event
