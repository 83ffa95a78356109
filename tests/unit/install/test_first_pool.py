"""The pools that a cluster begins with: made when absent, and otherwise the user's."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from sandpool.controlplane.api import LocalApi
from sandpool.install.first_pool import NO_POOLS, STANDARD, FirstPools, make_pools
from sandpool.kube.errors import NotFound
from sandpool.model.kinds import POOLS, TEMPLATES, raw
from sandpool.model.patches import merge_patch
from support.api.local_objects import bench


@pytest.fixture
async def api() -> AsyncIterator[LocalApi]:
    async with bench() as made:
        yield LocalApi(made.objects)


async def sizes(api: LocalApi) -> dict[str, int]:
    return {pool.metadata.name: pool.spec.replicas for pool in (await api.list(POOLS)).items}


async def test_one_pool_of_three(api: LocalApi) -> None:
    await make_pools(api, STANDARD)
    assert await sizes(api) == {"python": 3}
    (pool,) = (await api.list(POOLS)).items
    (template,) = (await api.list(raw(TEMPLATES))).items
    assert pool.spec.sandbox_template_ref.name == template.metadata.name == "python"
    assert (pool.metadata.namespace, template.metadata.namespace) == ("default", "default")
    pod = template.body["spec"]["podTemplate"]["spec"]
    assert pod["automountServiceAccountToken"] is False
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    (container,) = pod["containers"]
    assert {one["name"]: one["value"] for one in container["env"]} == {
        "HOME": "/workspace", "PYTHONUNBUFFERED": "1", "PIP_BREAK_SYSTEM_PACKAGES": "1", "PIP_DISABLE_PIP_VERSION_CHECK": "1",
    }  # fmt: skip
    assert container["securityContext"] == {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    assert "networkPolicy" not in template.body["spec"]  # so that it has the strict one


async def test_none(api: LocalApi) -> None:
    await make_pools(api, NO_POOLS)
    assert await sizes(api) == {}
    assert (await api.list(TEMPLATES)).items == ()


async def test_what_the_user_changed_stays(api: LocalApi) -> None:
    await make_pools(api, STANDARD)
    await api.patch(POOLS, "python", merge_patch({"spec": {"replicas": 0}}), "default")
    await api.patch(TEMPLATES, "python", merge_patch({"spec": {"envVarsInjectionPolicy": "Allowed"}}), "default")
    revision = (await api.list(POOLS)).revision
    await make_pools(api, STANDARD)
    assert (await api.list(POOLS)).revision == revision
    await make_pools(api, FirstPools({"python": 2, "more": 1}, scale=True))
    assert await sizes(api) == {"python": 2, "more": 1}
    assert (await api.get(TEMPLATES, "python", "default")).spec.env_vars_injection_policy == "Allowed"


async def test_a_pool_of_the_users_own_brings_no_template(api: LocalApi) -> None:
    own = {"metadata": {"name": "python"}, "spec": {"replicas": 1, "sandboxTemplateRef": {"name": "mine"}}}
    await api.create(POOLS, own, "default")
    await make_pools(api, STANDARD)
    await make_pools(api, FirstPools({"python": 4}, scale=True))
    assert await sizes(api) == {"python": 4}
    with pytest.raises(NotFound):
        await api.get(TEMPLATES, "python", "default")


async def test_a_start_that_was_cut_off_is_finished_by_the_next(api: LocalApi) -> None:
    await make_pools(api, STANDARD)
    await api.delete(POOLS, "python", "default")  # as if only the template had been written
    await make_pools(api, STANDARD)
    assert await sizes(api) == {"python": 3}


async def test_a_size_that_is_there_already_is_not_written(api: LocalApi) -> None:
    await make_pools(api, STANDARD)
    revision = (await api.list(POOLS)).revision
    await make_pools(api, FirstPools({"python": 3}, scale=True))
    assert (await api.list(POOLS)).revision == revision
