"""A pod's labels change while it runs, or before it does: its part of the network knows."""

from __future__ import annotations

from dataclasses import replace

from integration.pods.conftest import World, a_pod, runs, waits
from sandpool.base.errors import NodeError
from sandpool.model.metadata import Uid


async def test_other_labels_reach_the_network_at_once(world: World) -> None:
    work = replace(a_pod(), labels={"app": "a"})
    await world.backend.start_pod(work)
    await world.until(work, runs)
    attached = world.network.attached[work.uid]
    assert attached.labels == {"app": "a"}
    world.backend.relabel(work.uid, {"app": "b"})
    assert attached.labels == {"app": "b"}
    world.backend.relabel(Uid("nobody"), {"app": "c"})
    assert attached.labels == {"app": "b"}


async def test_a_pod_that_is_attached_later_has_the_labels_of_then(world: World) -> None:
    world.runtime.failures["create"] = [NodeError("NoSpace", "the disk is full; make room")]
    work = replace(a_pod(), labels={"app": "a"})
    await world.backend.start_pod(work)
    await world.until(work, waits("NoSpace"))
    world.backend.relabel(work.uid, {"app": "b"})
    await world.until(work, runs)
    assert world.network.attached[work.uid].labels == {"app": "b"}
