"""Limits that an operator chooses reach whatever is made of a template, and decide who is replaced."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from sandpool.app.controllers import ControllerOptions
from sandpool.controllers.pool.creation import blank_member, named
from sandpool.kube.api import Api
from sandpool.model.blueprint import blueprint_hash
from sandpool.model.container_defaults import NONE, STANDARD, ContainerDefaults, amounts
from sandpool.model.kinds import POOLS, SANDBOXES, TEMPLATES
from sandpool.model.sandbox import Sandbox
from support.clocks.virtual_loop import run_virtually
from support.simulated.control_plane import a_control_plane

CHOSEN = ContainerDefaults(amounts("memory=1Gi"), amounts("memory=64Mi"))


def resources(sandbox: Sandbox) -> Any:
    (container,) = msgspec.json.decode(sandbox.spec.pod_template.spec)["containers"]
    return container.get("resources")


@pytest.mark.parametrize(
    ("defaults", "wanted"),
    [
        pytest.param(
            STANDARD, STANDARD.texts() | {"requests": {"cpu": "100m", "memory": "128Mi", "ephemeral-storage": "0"}}
        ),
        pytest.param(CHOSEN, CHOSEN.texts()),
        pytest.param(NONE, None),
    ],
    ids=["standard", "chosen", "none"],
)
def test_members_and_cold_sandboxes_have_them(defaults: ContainerDefaults, wanted: Any) -> None:
    async def work() -> None:
        async with a_control_plane(options=ControllerOptions(defaults=defaults)) as plane:
            await plane.template(envVarsInjectionPolicy="Allowed")
            await plane.pool(2)
            await plane.filled(2)
            await plane.claim("cold", env=[{"name": "A", "value": "1"}])
            await plane.served(["cold"])
            found = {box.metadata.name: resources(box) for box in await plane.sandboxes()}
            assert len(found) == 3
            assert "cold" in found
            assert [one for one in found.values() if one != wanted] == []

    run_virtually(work())


@pytest.mark.parametrize("owned", [True, False], ids=["member", "orphan"])
@pytest.mark.parametrize(
    ("then", "stays"),
    [
        pytest.param(CHOSEN, True, id="the same defaults"),
        pytest.param(NONE, True, id="an earlier version"),
        pytest.param(STANDARD, False, id="other defaults"),
    ],
)
def test_who_was_made_with_others_is_replaced(then: ContainerDefaults, stays: bool, owned: bool) -> None:
    async def before(api: Api) -> None:
        spec = {"podTemplate": {"spec": {"containers": [{"name": "main", "image": "python"}]}}}
        template = await api.create(TEMPLATES, {"metadata": {"name": "python"}, "spec": spec}, "default")
        wish = {"replicas": 1, "sandboxTemplateRef": {"name": "python"}, "updateStrategy": {"type": "Recreate"}}
        pool = await api.create(POOLS, {"metadata": {"name": "python"}, "spec": wish}, "default")
        made = named(blank_member(pool, template, blueprint_hash(template.spec, then), then), "old")
        if not owned:
            made = msgspec.structs.replace(made, metadata=msgspec.structs.replace(made.metadata, owner_references=()))
        await api.create(SANDBOXES, made, "default")

    async def work() -> None:
        async with a_control_plane(options=ControllerOptions(defaults=CHOSEN), before=before) as plane:

            async def settled() -> bool:
                status = (await plane.get_pool()).status
                return status.updated_replicas == status.ready_replicas == status.replicas == 1

            await plane.until(settled)
            (member,) = await plane.sandboxes()
            assert (member.metadata.name == "old") is stays
            assert resources(member) == (None if then == NONE else CHOSEN.texts())

    run_virtually(work())
