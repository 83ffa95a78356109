"""Where a cluster checks it, one may only name an owner whose deletion one may hold up. No audit log shows that question, so
that each of these permissions is needed is shown by taking it away."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from sandpool.install.settings import CONTROLLER
from sandpool.model.conditions import is_true
from sandpool.model.kinds import CLAIMS, EVENTS, POOLS, SANDBOXES, raw
from sandpool.model.reasons import Type
from sandpool.model.resource import Resource
from support.kube.access import USER
from support.kube.stage import Stage, User

pytestmark = [pytest.mark.kube, pytest.mark.timeout(300)]

ROLE = f"/apis/rbac.authorization.k8s.io/v1/clusterroles/{CONTROLLER}"
REVIEWS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
MERGE = "application/merge-patch+json"
BOX = {"spec": {"containers": [{"name": "main", "image": "python:3.13"}]}}


@asynccontextmanager
async def without(stage: Stage, user: User, kind: Resource[Any]) -> AsyncIterator[None]:
    """The controllers may not change the finalizers of this kind while the body runs."""
    server = stage.server
    resource = f"{kind.plural}/finalizers"
    rules = (await asyncio.to_thread(server.request, "GET", ROLE))["rules"]
    less = [rule for rule in copy.deepcopy(rules) if resource not in rule["resources"]]
    assert len(less) == len(rules) - 1

    async def may() -> bool:
        attributes = {"group": kind.group, "resource": kind.plural, "subresource": "finalizers", "verb": "update"}
        spec = {"user": USER, "groups": ["system:serviceaccounts"], "resourceAttributes": attributes}
        answer = await asyncio.to_thread(server.request, "POST", REVIEWS, {"spec": spec})
        return bool(answer["status"]["allowed"])

    async def may_not() -> bool:
        return not await may()

    await asyncio.to_thread(server.request, "PATCH", ROLE, {"rules": less}, MERGE)
    try:
        await user.until(may_not, "the permission is gone")
        yield
    finally:
        await asyncio.to_thread(server.request, "PATCH", ROLE, {"rules": rules}, MERGE)
        await user.until(may, "the permission is back")


async def act(user: User, kind: Resource[Any]) -> None:
    """What makes the controllers name an owner of this kind."""
    if kind == SANDBOXES:
        await user.create(SANDBOXES, "box", podTemplate=BOX)
    elif kind == POOLS:
        await user.pool(1)
    else:
        await user.claim("box")


@pytest.mark.parametrize("kind", [SANDBOXES, POOLS, CLAIMS], ids=lambda kind: kind.plural)
async def test_finalizers_of_owners_must_be_theirs_to_change(stage: Stage, user: User, kind: Resource[Any]) -> None:
    await user.template()
    if kind == CLAIMS:
        await user.pool(1)
        await user.filled(1)
    async with without(stage, user, kind):
        audit = stage.audit
        audit.mark()
        await act(user, kind)

        async def refused() -> bool:
            return any(name.endswith(" 403") for name in audit.refused(USER, user.namespace))

        await user.until(refused, "the server refuses what the controllers write")

        async def told() -> bool:
            """On the object, or in an Event about it."""
            found = [one.body for one in [*await user.all(raw(kind)), *await user.all(raw(EVENTS))]]
            return any("cannot set blockOwnerDeletion" in str(body) for body in found)

        await user.until(told, "somebody is told why")
    await user.until(lambda: served(user, kind), "all is well again")


async def served(user: User, kind: Resource[Any]) -> bool:
    found = await user.all(kind)
    return bool(found) and all(is_true(one.status.conditions, Type.READY) for one in found)
