"""Pods that are over, on a machine where not everything can be taken back at once."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from integration.pods.conftest import QUICK, World, a_pod, gone, over, runs
from sandpool.base.errors import NodeError
from sandpool.node.backend import ContainerSpec, Exit, PodStatus, Resources, Workload, WorkloadSpec
from sandpool.node.network.addresses import AddressPool
from sandpool.node.volumes.spec import EmptyDir, VolumeSpec
from support.node.pod_parts import FolderVolumes

BUSY = NodeError("Busy", "something still holds it")
SLOW = replace(QUICK, first_retry=1000.0, longest_retry=1000.0)


def reclaimed(seen: PodStatus | None) -> bool:
    return seen is not None and seen.reclaimed


class Held(FolderVolumes):
    """Volumes that cannot be removed for so many times."""

    times = 0

    async def remove(self, uid: str) -> None:
        if self.times:
            self.times -= 1
            raise BUSY
        await super().remove(uid)


async def held(world: World, times: int) -> Held:
    await world.backend.close()
    world.volumes = volumes = Held(world.folder / "volumes")
    world.backend = world.make()
    await world.open()
    volumes.times = times
    return volumes


async def ended(world: World, work: Workload) -> None:
    await world.backend.start_pod(work)
    await world.until(work, over)


async def test_a_sandbox_that_does_not_end_is_ended_later(world: World) -> None:
    work = a_pod("echo said")
    await ended(world, work)
    world.runtime.failures["destroy"] = [BUSY] * 3
    await world.backend.reclaim(work)
    await world.until(work, reclaimed)
    assert world.runtime.calls.count("destroy") == 4
    assert world.images.held == {}
    assert await world.logs(work) == b"said\n"


async def test_volumes_that_cannot_be_removed_are_removed_later(world: World) -> None:
    volumes = await held(world, 3)
    work = replace(a_pod("exit 0"), volumes=(VolumeSpec("data", EmptyDir()),))
    await ended(world, work)
    await world.backend.reclaim(work)
    await world.until(work, reclaimed)
    assert volumes.times == 0
    assert not (world.folder / "volumes" / "pods" / work.uid).exists()


@pytest.mark.parametrize("what", ["sandbox", "volumes"])
async def test_a_pod_that_waits_to_be_reclaimed_can_be_deleted_at_once(world: World, what: str) -> None:
    world.options = SLOW
    volumes = await held(world, 0)
    work = a_pod("exit 0")
    await ended(world, work)
    if what == "sandbox":
        world.runtime.failures["destroy"] = [BUSY]
    else:
        volumes.times = 1
    await world.backend.reclaim(work)
    async with asyncio.timeout(10):
        while world.runtime.failures["destroy"] or volumes.times:
            await asyncio.sleep(0.001)
    assert not reclaimed(world.backend.pod_status(work.uid))
    await world.backend.stop_pod(work.uid, 1000)
    await world.until(work, gone)


async def test_a_stop_waits_until_what_is_being_taken_back_is(world: World) -> None:
    work = a_pod("exit 0")
    await ended(world, work)
    world.runtime.gates["destroy"] = gate = asyncio.Event()
    await world.backend.reclaim(work)
    async with asyncio.timeout(10):
        while "destroy" not in world.runtime.calls:
            await asyncio.sleep(0.001)
    await world.backend.stop_pod(work.uid, 0)
    gate.set()
    await world.until(work, gone)
    assert world.runtime.calls.count("destroy") == 1


async def test_its_address_and_images_are_free_for_others(world: World) -> None:
    world.network.addresses = AddressPool("127.64.0.0/30")
    done = [a_pod("exit 0", number) for number in (1, 2)]
    for work in done:
        await ended(world, work)
        await world.backend.reclaim(work)
        await world.until(work, reclaimed)
    assert world.images.held == {}
    more = [a_pod(number=number) for number in (3, 4)]
    for work in more:
        await world.backend.start_pod(work)
        await world.until(work, runs)
    for work in done:  # what is not theirs any more stays whose it is
        await world.backend.stop_pod(work.uid, 0)
        await world.until(work, gone)
    addresses = {seen.address for seen in world.backend.list_pods()}
    assert len(addresses) == 2
    assert "" not in addresses


async def test_a_sidecar_that_is_about_to_run_again_does_not(world: World) -> None:
    side = ContainerSpec(name="side", image="host", command=("sh", "-c", "exit 1"), restart_policy="Always")
    work = a_pod("exit 0")
    work = replace(work, spec=WorkloadSpec(init_containers=(side,), containers=work.spec.containers))
    await ended(world, work)
    await world.until(work, lambda seen: seen is not None and isinstance(seen.init[0].state, Exit))
    world.images.gate, pulls = asyncio.Event(), world.images.pulls
    await world.backend.restart_container(work.uid, "side")
    async with asyncio.timeout(10):
        while world.images.pulls == pulls:
            await asyncio.sleep(0)
    await world.backend.reclaim(work)
    seen = await world.until(work, reclaimed)
    world.images.gate.set()
    assert seen is not None
    assert (seen.init[0].restarts, world.runtime.calls.count("start")) == (0, 2)
    assert world.backend.pod_status(work.uid) == seen


async def test_the_disk_counts_only_its_logs(world: World) -> None:
    work = a_pod("head -c 8000 /dev/zero", resources=Resources({"ephemeral-storage": "1Mi"}))
    await ended(world, work)
    (occupant,) = world.backend.occupants()
    assert occupant.limits.any
    await world.backend.reclaim(work)
    await world.until(work, reclaimed)
    used = await occupant.measure(thorough=True)
    assert 8000 <= used.total < 100_000
    assert (used.containers.keys(), used.volumes, occupant.limits.any) == ({"main"}, {}, False)
    occupant.evict("The node was low on resource. ")
    await world.until(work, gone)
