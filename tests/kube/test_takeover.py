"""Another installation's cluster, taken over on real servers and given back: the lease keeps the two apart, nothing restarts, every
claim keeps its sandbox, and the commands that the documentation gives do what it says."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import pytest

from sandpool.install.rules import LEASE
from sandpool.kube.errors import NotFound
from sandpool.model.conditions import is_true
from sandpool.model.kinds import (
    CLAIMS,
    LEASES,
    NETWORK_POLICIES,
    PERSISTENT_VOLUME_CLAIMS,
    PODS,
    POOLS,
    SANDBOXES,
    SERVICE_ACCOUNTS,
    TEMPLATES,
)
from sandpool.model.patches import merge_patch
from sandpool.model.pool import SandboxWarmPool
from sandpool.model.reasons import Type
from sandpool.model.resource import Resource
from support.kube import server as kube_server
from support.kube.access import NAMESPACE, USER
from support.kube.left_behind import KEPT, MEMBERS, RUNNING, essence, identities, left_behind
from support.kube.other_installation import freed
from support.kube.process import Controller, controller
from support.kube.stage import Stage, User, a_stage, a_user
from support.product.guide import REPLACE, command, shell

pytestmark = [pytest.mark.kube, pytest.mark.timeout(300)]

OTHER = "agent-sandbox-controller-6d5f7c9b8-x2x2x_0d7a5a4e-0000-4000-8000-000000000000"


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    if lacking := kube_server.lacking():
        pytest.skip(lacking)
    with a_stage(tmp_path_factory.mktemp("stage"), "takeover") as stage:
        yield stage


@asynccontextmanager
async def inherited(stage: Stage, namespace: str, version: str = "v1beta1") -> AsyncIterator[User]:
    async with a_user(stage, namespace) as user:

        async def account() -> bool:
            return bool(await user.get(SERVICE_ACCOUNTS, "default"))

        await user.until(account, "pods can be made")
        await left_behind(version, namespace=namespace)(user.api)
        yield user


async def settled(stage: Stage, user: User) -> None:
    """Every claim, sandbox and pool is in our words, and nobody writes any more."""
    audit, seen = stage.audit, -1

    async def silent() -> bool:
        nonlocal seen
        before, seen = seen, sum(audit.writes(USER).values())
        await asyncio.sleep(3 if before != seen else 0)
        return before == seen > 0

    await user.until(silent, "it has done what it had to do")


class OtherLeader:
    """Holds the lease as the other program does: renewed every two seconds, released when it is stopped."""

    def __init__(self, user: User) -> None:
        self._api = user.api

    async def lead(self) -> None:
        spec = {"holderIdentity": OTHER, "leaseDurationSeconds": 15, "acquireTime": _now(), "leaseTransitions": 3}
        await self._api.create(LEASES, {"metadata": {"name": LEASE}, "spec": spec | {"renewTime": _now()}}, NAMESPACE)

    async def renew(self) -> None:
        await self._write({"renewTime": _now()})

    async def stop(self) -> None:
        await self._write({"holderIdentity": "", "leaseDurationSeconds": 1, "renewTime": _now()})

    async def _write(self, spec: dict[str, Any]) -> None:
        await self._api.patch(LEASES, LEASE, merge_patch({"spec": spec}), NAMESPACE)


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def printed(beginning: str, stage: Stage) -> None:
    """Runs a command of the guide that prints commands, and runs these."""
    commands = shell(command(REPLACE, beginning), stage.server, stage.folder)
    shell(commands, stage.server, stage.folder)


async def test_it_waits_for_the_other_one_then_goes_on_where_it_stopped(stage: Stage) -> None:
    async with inherited(stage, "inherited") as user:
        before = await identities(user.api, user.namespace)
        claims = {each.metadata.name: essence(each) for each in await user.all(CLAIMS)}
        other = OtherLeader(user)
        await other.lead()
        with controller(stage.folder, stage.identity.kubeconfig) as ours:
            await waits(ours, other, stage, user)
            await other.stop()
            await asyncio.to_thread(ours.wait_ready, leading=True)
            await settled(stage, user)
            assert await identities(user.api, user.namespace) == before
            assert {each.metadata.name: essence(each) for each in await user.all(CLAIMS)} == claims
            assert stage.audit.refused(USER) == {}
            made = {each.about for each in stage.audit.requests(USER) if each.verb in ("create", "delete")}
            assert made.isdisjoint(f"{verb} {kind.plural}" for verb in ("create", "delete") for kind in KEPT)
            await well(user)
            await user.claim("new")
            assert (await user.served("new"))["new"] in MEMBERS
            await user.filled(len(MEMBERS))
            assert "traceback" not in ours.log.read_text()
        await given_back(stage, user, other)


async def waits(ours: Controller, other: OtherLeader, stage: Stage, user: User) -> None:
    """For longer than a lease lasts it looks at the lease, and touches nothing."""
    await asyncio.to_thread(ours.wait_ready)
    audit = stage.audit
    audit.mark()

    async def looked() -> bool:
        await other.renew()
        return sum(each.about == "get leases" for each in audit.requests(USER)) > 10

    await user.until(looked, "it has asked for the lease again and again")
    assert not ours.leads()
    assert stage.audit.writes(USER) == {}
    assert (await user.api.get(LEASES, LEASE, NAMESPACE)).spec.holder_identity == OTHER


async def well(user: User) -> None:
    for box in await user.sandboxes():
        assert is_true(box.status.conditions, Type.READY) is (box.metadata.name in RUNNING)
    pool: SandboxWarmPool = await user.get(POOLS, "python")
    assert pool.status.ready_replicas == pool.status.updated_replicas == len(MEMBERS)
    (policy,) = await user.all(NETWORK_POLICIES)
    assert freed(policy, "python")


async def given_back(stage: Stage, user: User, other: OtherLeader) -> None:
    """Ours has ended. The lease is free at once, and the policies belong to their templates again."""
    assert not (await user.api.get(LEASES, LEASE, NAMESPACE)).spec.holder_identity
    await asyncio.to_thread(printed, "kubectl get sandboxtemplates -A -o json", stage)
    (policy,) = await user.all(NETWORK_POLICIES)
    template = await user.get(TEMPLATES, "python")
    assert policy.metadata.controller is not None
    assert policy.metadata.controller.uid == template.metadata.uid


async def test_references_of_an_old_version_are_told_and_can_be_rewritten(stage: Stage) -> None:
    """A real garbage collector does not find an owner that is named in a version which is not served."""
    async with inherited(stage, "old", "v1alpha1") as user:
        with controller(stage.folder, stage.identity.kubeconfig, name="old") as ours:
            await asyncio.to_thread(ours.wait_ready, leading=True)
            await settled(stage, user)
            (told,) = ours.lines("owners are named in a version that is not served")
            assert told["see"] == "docs/how-to/replace-another-controller.md"
            await user.delete(SANDBOXES, "asleep")
            assert not (await user.get(PERSISTENT_VOLUME_CLAIMS, "data-asleep")).metadata.leaving
            await asyncio.to_thread(printed, "kubectl get sandboxes,pods,services", stage)
            await ends(user, PERSISTENT_VOLUME_CLAIMS, "data-asleep")
            await user.delete(SANDBOXES, "mine")
            await ends(user, PODS, "mine")
            assert ours.lines("reconcile failed") == []


async def ends(user: User, kind: Resource[Any], name: str) -> None:
    """It is gone, or would be if its node or its user let go of it."""

    async def leaving() -> bool:
        try:
            return bool((await user.get(kind, name)).metadata.leaving)
        except NotFound:
            return True

    await user.until(leaving, f"{kind.kind} {name} is collected")
