"""What a pod needs cannot be had, or not yet: it says so, tries again, and can be stopped at any moment."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from integration.pods.conftest import QUICK, World, a_pod, gone, over, runs, waits
from sandpool.base.errors import NodeError
from sandpool.node.backend import BackendError, ContainerSpec, Exit, Waiting, WorkloadSpec
from sandpool.node.images.image import ImageConfig
from sandpool.node.network.addresses import AddressPool
from sandpool.node.volumes.spec import EmptyDir, Volume, VolumeSpec
from support.node.pod_parts import FolderVolumes


async def test_an_image_that_appears_later_is_used_then(world: World) -> None:
    work = a_pod(image="later")
    await world.backend.start_pod(work)
    await world.until(work, waits("ImagePullBackOff"))
    world.images.known["later"] = ImageConfig()
    await world.until(work, runs)
    assert world.images.held == {work.holder: {"later"}}
    await world.backend.stop_pod(work.uid, 0)
    await world.until(work, gone)
    assert world.images.held == {}


async def test_a_pull_is_given_up_when_the_pod_is_stopped(world: World) -> None:
    world.images.gate = asyncio.Event()
    work = a_pod()
    await world.backend.start_pod(work)
    await world.until(work, lambda seen: seen is not None and bool(seen.address))
    async with asyncio.timeout(10):
        while not world.images.pulls:
            await asyncio.sleep(0)
        await world.backend.stop_pod(work.uid, 1000)
        await world.until(work, gone)


@pytest.mark.parametrize("call", ["create", "start"])
async def test_what_the_runtime_refuses_is_told_and_tried_again(world: World, call: str) -> None:
    world.runtime.failures[call] = [NodeError("NoSpace", "the disk is full; make room")] * 2
    work = a_pod()
    await world.backend.start_pod(work)
    seen = await world.until(work, waits("NoSpace"))
    assert seen is not None
    assert seen.containers[0].state == Waiting("NoSpace", "the disk is full; make room")
    seen = await world.until(work, runs)
    assert seen is not None
    assert seen.containers[0].restarts == 0
    assert world.runtime.calls.count(call) == 3


async def test_a_restart_that_fails_waits_and_remembers_the_end_before(world: World) -> None:
    work = a_pod("exit 4")
    await world.backend.start_pod(work)
    await world.until(work, over)
    world.runtime.failures["start"] = [NodeError("NoSpace", "full")]
    await world.backend.restart_container(work.uid, "main")
    seen = await world.until(work, waits("NoSpace"))
    assert seen is not None
    last = seen.containers[0].last
    assert last is not None
    assert (seen.containers[0].restarts, last.code) == (0, 4)
    seen = await world.until(work, lambda seen: over(seen) and seen is not None and seen.containers[0].restarts == 1)
    assert seen is not None
    assert seen.containers[0].last == last


async def test_a_sandbox_that_was_lost_is_made_anew_at_the_same_address(world: World) -> None:
    work = a_pod("exit 0")
    await world.backend.start_pod(work)
    before = await world.until(work, over)
    world.runtime.failures["start"] = [NodeError("SandboxGone", "its server died")]
    await world.backend.restart_container(work.uid, "main")
    after = await world.until(work, lambda seen: over(seen) and seen is not None and seen.containers[0].restarts == 1)
    assert before is not None
    assert after is not None
    assert after.address == before.address
    assert world.runtime.calls == ["create", "start", "start", "destroy", "create", "start"]


async def test_no_address_is_left(world: World) -> None:
    world.network.addresses = AddressPool("127.64.0.0/30")
    works = [a_pod(number=number) for number in (1, 2, 3)]
    for work in works[:2]:
        await world.backend.start_pod(work)
        await world.until(work, runs)
    await world.backend.start_pod(works[2])
    await world.until(works[2], waits("NoAddress"))
    await world.backend.stop_pod(works[0].uid, 0)
    await world.until(works[0], gone)
    await world.until(works[2], runs)


async def test_a_volume_that_cannot_be_made_is_told(world: World) -> None:
    class Broken(FolderVolumes):
        broken = True

        async def make(
            self, uid: str, specs: Sequence[VolumeSpec], *, group: int | None = None, tenant: str = ""
        ) -> Mapping[str, Volume]:
            if self.broken:
                raise NodeError("FailedMount", "the quota is used up")
            return await super().make(uid, specs, group=group, tenant=tenant)

    await world.backend.close()
    world.volumes = volumes = Broken(world.folder / "volumes")
    world.backend = world.make()
    await world.open()
    work = replace(a_pod(), volumes=(VolumeSpec("data", EmptyDir()),))
    await world.backend.start_pod(work)
    await world.until(work, waits("FailedMount"))
    volumes.broken = False
    await world.until(work, runs)


async def test_what_cannot_be_taken_away_is_tried_again_until_it_is_gone(world: World) -> None:
    work = a_pod()
    await world.backend.start_pod(work)
    await world.until(work, runs)
    world.runtime.failures["destroy"] = [NodeError("Busy", "a process does not end")] * 3
    await world.backend.stop_pod(work.uid, 0)
    await world.until(work, gone)
    assert world.runtime.calls.count("destroy") == 4


async def test_an_obstacle_is_tried_at_once_when_the_stop_is_ordered_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    world = World(tmp_path, replace(QUICK, first_retry=1000, longest_retry=1000))
    await world.open()
    work = a_pod()
    await world.backend.start_pod(work)
    await world.until(work, runs)
    world.runtime.failures["destroy"] = [NodeError("Busy", "a process does not end")]
    await world.backend.stop_pod(work.uid, 0)
    async with asyncio.timeout(10):
        while "pod waits" not in caplog.text:
            await asyncio.sleep(0.01)
    await world.backend.stop_pod(work.uid, 0)
    await world.until(work, gone)
    await world.backend.close()


@pytest.mark.parametrize("call", ["create", "start"])
async def test_a_stop_during_a_call_that_takes_its_time(world: World, call: str) -> None:
    """The call is waited for and what it made is taken away; the container does not keep the whole grace."""
    world.runtime.gates[call] = gate = asyncio.Event()
    work = a_pod()
    await world.backend.start_pod(work)
    async with asyncio.timeout(10):
        while call not in world.runtime.calls:
            await asyncio.sleep(0)
        await world.backend.stop_pod(work.uid, 1000)
        gate.set()
        await world.until(work, gone)
    assert "destroy" in world.runtime.calls


async def test_close_in_the_middle_of_a_start(world: World) -> None:
    world.runtime.gates["start"] = gate = asyncio.Event()
    await world.backend.start_pod(a_pod())
    async with asyncio.timeout(10):
        while "start" not in world.runtime.calls:
            await asyncio.sleep(0)
        closing = asyncio.create_task(world.backend.close())
        gate.set()
        await closing
    assert list(world.backend.list_pods()) == []
    await world.open()


async def test_a_folder_that_cannot_be_made_is_told(world: World) -> None:
    work = a_pod()
    (world.folder / "pods" / work.uid).write_text("in the way")
    await world.backend.start_pod(work)
    await world.until(work, waits("CreatePodSandboxError"))
    (world.folder / "pods" / work.uid).unlink()
    await world.until(work, runs)


@pytest.mark.parametrize("uid", ["../escape", "", "a/b", ".", "x" * 200])
async def test_a_uid_is_never_a_path(world: World, uid: str) -> None:
    with pytest.raises(BackendError):
        await world.backend.start_pod(replace(a_pod(), uid=uid))  # type: ignore[arg-type]


async def test_the_images_signal_is_used_to_ask(world: World) -> None:
    world.images.known["host"] = ImageConfig(stop_signal="SIGQUIT")
    work = a_pod("trap 'exit 5' QUIT; echo up; while true; do sleep 0.02; done")
    await world.backend.start_pod(work)
    await world.until(work, runs)
    async for _ in world.backend.logs(work.uid, "main", follow=True):
        break
    ends: list[Exit] = []
    await world.backend.stop_pod(work.uid, 1000)

    def end(seen: object) -> bool:
        now = world.backend.pod_status(work.uid)
        if now is not None and isinstance(now.containers[0].state, Exit):
            ends.append(now.containers[0].state)
        return now is None

    await world.until(work, end)
    assert ends[-1].code == 5


async def test_the_end_of_the_log_stands_in_for_last_words(world: World) -> None:
    fields = {"termination_message_path": "/dev/termination-log", "termination_message_policy": "FallbackToLogsOnError"}
    for number, code in ((1, 3), (2, 0)):
        work = a_pod(f"echo what went wrong; exit {code}", number, **fields)
        await world.backend.start_pod(work)
        seen = await world.until(work, over)
        assert seen is not None
        end = seen.containers[0].state
        assert isinstance(end, Exit)
        assert end.message == ("what went wrong\n" if code else "")


async def test_a_container_with_a_name_of_its_own_cannot_reach_other_folders(world: World) -> None:
    spec = ContainerSpec(name="../../x", image="host", command=("true",))
    work = replace(a_pod(), spec=WorkloadSpec(containers=(spec,)))
    await world.backend.start_pod(work)
    await world.until(work, waits("InvalidName"))
    assert not Path(world.folder / "x").exists()


async def test_a_reader_of_logs_outlives_the_backend_without_harm(world: World) -> None:
    work = a_pod("echo up; exec sleep 1000")
    await world.backend.start_pod(work)
    await world.until(work, runs)
    reader = world.backend.logs(work.uid, "main", follow=True)
    assert await anext(reader) == b"up\n"
    await world.backend.close()
    with pytest.raises((BackendError, StopAsyncIteration)):
        await anext(reader)
    await world.open()
