"""What an operator can choose about all controllers together."""

from __future__ import annotations

from typing import Any

import pytest

from sandpool.app.controllers import ControllerOptions, Observability
from sandpool.loop.events import Kind
from sandpool.model import labels
from sandpool.model.conditions import is_true
from sandpool.model.kinds import PODS, SANDBOXES, SERVICES
from sandpool.model.metadata import Object
from sandpool.model.reasons import Type
from sandpool.model.resource import Resource
from support.clocks.virtual_loop import run_virtually
from support.simulated.control_plane import ControlPlane, a_control_plane

SPEC = {"containers": [{"name": "main", "image": "python", "ports": [{"containerPort": 80}]}]}
OWNER = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "web", "controller": True}


@pytest.mark.parametrize("tracked", [False, True])
def test_pods_of_others_are_known_by_name_or_not_at_all(tracked: bool) -> None:
    """And what may be taken over is, although its label is not the one that is asked for."""

    async def work() -> None:
        async with a_control_plane(options=ControllerOptions(tracked_only=tracked)) as plane:
            await foreign(plane)
            adopted = await adoptable(plane)
            await plane.user.create(
                SANDBOXES,
                {"metadata": {"name": "box"}, "spec": {"podTemplate": {"spec": SPEC}, "service": True}},
                "default",
            )

            async def ready() -> bool:
                box = await plane.user.get(SANDBOXES, "box", "default")
                return is_true(box.status.conditions, Type.READY)

            await plane.until(ready)
            for resource, uid in adopted.items():
                assert (await plane.user.get(resource, "box", "default")).metadata.uid == uid
            caches = plane.controllers.caches
            known = {pod.metadata.name: pod for pod in caches.pods}
            assert set(known) == ({"box"} if tracked else {"box", "web-1"})
            assert known["box"].status.phase == "Running"
            if not tracked:
                assert known["web-1"].spec.containers == ()
            assert {service.metadata.name for service in caches.services} == ({"box"} if tracked else {"box", "web"})

    run_virtually(work())


async def foreign(plane: ControlPlane) -> None:
    head = {"name": "web-1", "labels": {"app": "web"}, "ownerReferences": [OWNER]}
    await plane.user.create(PODS, {"metadata": head, "spec": SPEC}, "default")
    port = [{"port": 80}]
    await plane.user.create(SERVICES, {"metadata": {"name": "web"}, "spec": {"ports": port}}, "default")


async def adoptable(plane: ControlPlane) -> dict[Resource[Any], str]:
    head = {"name": "box", "labels": {labels.ADOPTABLE: "true"}}
    headless = {"clusterIP": "None", "selector": {"app": "box"}}
    pod = await plane.user.create(PODS, {"metadata": head, "spec": SPEC}, "default")
    service = await plane.user.create(SERVICES, {"metadata": head, "spec": headless}, "default")
    return {PODS: pod.metadata.uid, SERVICES: service.metadata.uid}


class Heard:
    def __init__(self) -> None:
        self.about: set[str] = set()

    def emit(
        self, resource: Resource[Any], about: Object, kind: Kind, reason: str, message: str, action: str = ""
    ) -> None:
        self.about.add(resource.kind)


@pytest.mark.parametrize("events", [True, False])
def test_claims_can_be_left_out_of_the_events(events: bool) -> None:
    heard = Heard()

    async def work() -> None:
        observability = Observability(events=heard)
        async with a_control_plane(
            options=ControllerOptions(claim_events=events), observability=observability
        ) as plane:
            await plane.template()
            await plane.pool(1)
            await plane.filled(1)
            await plane.claim("mine")
            await plane.served(["mine"])

    run_virtually(work())
    assert ("SandboxClaim" in heard.about) is events
