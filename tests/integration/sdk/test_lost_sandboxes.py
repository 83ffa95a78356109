"""A handle whose sandbox is deleted, restarted or out of memory behind its back: which error that is, and where the handle leads then.

A real cluster with real processes, and somebody who does with `kubectl` what a handle does not expect. Both halves of the SDK.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from sandpool.install.first_pool import template_body
from sandpool.kube.api import Api
from sandpool.model.kinds import CLAIMS, PODS, POOLS, SANDBOXES, TEMPLATES
from sandpool.model.patches import merge_patch
from sandpool.sdk._async.sandbox import AsyncSandbox
from sandpool.sdk._sync.sandbox import Sandbox
from sandpool.sdk.claims import State
from sandpool.sdk.config import Config
from sandpool.sdk.errors import (
    CommandLost,
    OutOfMemory,
    ProcessLost,
    SandboxEvicted,
    SandboxGone,
    SandboxReplaced,
    SandboxRestarted,
)
from support.network.cutting_proxy import a_cutting_proxy
from support.network.sdk_box import Threaded
from support.product.cluster import Cluster, running_cluster
from support.product.cluster_watch import the_api, until

MEMORY = 96 << 20
HOG = f"held = bytearray({4 * MEMORY})"
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root has limits of memory everywhere")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    flags = ("--backend", "namespaces", "--no-pool")
    with running_cluster(tmp_path_factory.mktemp("fate") / "data", *flags) as made:
        asyncio.run(_fill(made.data_dir))
        yield made


async def _fill(data_dir: Path) -> None:
    """A pool of two, whose members have little memory."""
    template = template_body()
    [container] = template["spec"]["podTemplate"]["spec"]["containers"]
    container["resources"] = {"limits": {"memory": str(MEMORY)}}
    async with the_api(data_dir) as api:
        await api.create(TEMPLATES, template, "default")
        spec = {"replicas": 2, "sandboxTemplateRef": {"name": "python"}}
        await api.create(POOLS, {"metadata": {"name": "python"}, "spec": spec}, "default")
        await until(api, POOLS, lambda pools: pools["python"].status.ready_replicas == 2)


@pytest.fixture
async def api(cluster: Cluster) -> AsyncIterator[Api]:
    async with the_api(cluster.data_dir) as found:
        yield found


@asynccontextmanager
async def a_claim(kind: str, cluster: Cluster) -> AsyncIterator[Any]:
    config = Config(data_dir=cluster.data_dir)
    if kind == "async":
        async with AsyncSandbox.claim("python", config=config) as box:
            yield box
    else:
        held = Threaded(await asyncio.to_thread(Sandbox.claim, "python", config=config))
        async with held as box:
            yield box


@pytest.fixture(params=["async", "sync"])
async def box(request: pytest.FixtureRequest, cluster: Cluster) -> AsyncIterator[Any]:
    async with a_claim(request.param, cluster) as found:
        yield found


async def under_way(box: Any, api: Api, mark: str) -> asyncio.Task[Any]:
    """A command that runs for long, once it does."""
    running = asyncio.create_task(box.run(f"touch {mark}; sleep 600"))
    while not await box.files.exists(mark):
        assert not running.done(), running
        await asyncio.sleep(0.02)
    return running


async def test_a_handle_follows_its_claim_to_another_sandbox_and_says_so_once(box: Any, api: Api) -> None:
    old = box.sandbox
    await box.files.write("mine", "x")
    await api.delete(SANDBOXES, old, "default")
    await until(api, SANDBOXES, lambda found: old not in found)
    with pytest.raises(
        SandboxReplaced, match=rf"its sandbox {old} was deleted, and the claim has another one now"
    ) as caught:
        await box.run("true")
    new = caught.value.sandbox
    assert (await box.run("echo here")).stdout == "here\n"
    assert not await box.files.exists("mine")
    assert box.sandbox == new != old
    info = await box.info()
    assert (info.sandbox, info.state) == (new, State.READY)


async def test_a_sandbox_that_is_deleted_under_a_command(box: Any, api: Api) -> None:
    old = box.sandbox
    running = await under_way(box, api, "runs")
    await api.delete(SANDBOXES, old, "default")
    with pytest.raises(SandboxReplaced):
        await running
    assert (await box.run("echo here")).stdout == "here\n"


async def test_a_claim_that_is_deleted_under_a_command(cluster: Cluster, api: Api) -> None:
    for kind in ("async", "sync"):
        async with a_claim(kind, cluster) as box:
            running = await under_way(box, api, "runs")
            await api.delete(CLAIMS, box.name, "default")
            with pytest.raises(SandboxGone, match="has ended; claim another sandbox"):
                await running
            with pytest.raises(SandboxGone):
                await box.files.read("runs")


async def test_a_pod_that_is_deleted_under_commands(box: Any, api: Api) -> None:
    process = await box.start(["sleep", "600"])
    running = await under_way(box, api, "runs")
    await api.delete(PODS, box.sandbox, "default", grace=0)
    with pytest.raises(SandboxRestarted, match="pod") as caught:
        await running
    assert caught.value.reason == "PodDeleted"
    with pytest.raises(ProcessLost) as lost:
        await process.wait()
    assert lost.value.reason == "PodDeleted"


async def test_a_container_that_ends_under_commands_is_told_and_counted(box: Any, api: Api) -> None:
    assert (await box.info()).restarts == 0
    process = await box.start(["sleep", "600"])
    running = await under_way(box, api, "runs")
    await _kill_first(box)
    with pytest.raises(SandboxRestarted, match=r"container main (has )?ended with exit code 137") as caught:
        await running
    assert caught.value.reason == "Error"
    await until(api, PODS, lambda found: _restarted(found[box.sandbox]))
    await until(api, SANDBOXES, lambda found: _ready(found[box.sandbox]))
    with pytest.raises(ProcessLost, match="what ran in it ended"):
        await process.wait()
    info = await box.info()
    assert (info.restarts, info.last_restart_reason) == (1, "Error")


async def test_a_container_that_ends_while_nobody_calls(box: Any, api: Api) -> None:
    """The call after that says so before anything is done, and the one after works."""
    process = await box.start("sleep 0.2; kill -9 $(pgrep -o -x -f 'sleep infinity')")
    await until(api, PODS, lambda found: _restarted(found[box.sandbox]))
    await until(api, SANDBOXES, lambda found: _ready(found[box.sandbox]))
    with pytest.raises(SandboxRestarted, match="this call did nothing: its container main ended") as caught:
        await box.run("touch done")
    assert caught.value.reason == "Error"
    assert not await box.files.exists("done")
    assert (await box.run("echo here")).stdout == "here\n"
    with pytest.raises(ProcessLost, match="what ran in it ended"):
        await process.wait()
    assert (await box.run("echo here")).stdout == "here\n"
    info = await box.info()
    assert (info.restarts, info.last_restart_reason) == (1, "Error")


@pytest.mark.parametrize("asked", [True, False], ids=["counted before", "never counted before"])
async def test_a_pod_that_is_deleted_while_nobody_calls(box: Any, api: Api, asked: bool) -> None:
    await box.files.write("mine", "x")
    if asked:
        assert (await box.info()).restarts == 0
    await _delete_pod(box, api)
    if asked:
        info = await box.info()
        assert (info.restarts, info.last_restart_reason) == (1, "PodDeleted")
    with pytest.raises(SandboxRestarted, match="this call did nothing: its pod was deleted") as caught:
        await box.files.write("other", "x")
    assert caught.value.reason == "PodDeleted"
    assert not await box.files.exists("mine")
    assert not await box.files.exists("other")
    info = await box.info()
    assert (info.restarts, info.last_restart_reason) == (1, "PodDeleted")
    await _delete_pod(box, api)
    with pytest.raises(SandboxRestarted):
        await box.run("true")
    assert (await box.run("echo here")).stdout == "here\n"
    assert (await box.info()).restarts == 2


async def test_what_one_does_oneself_is_no_news(box: Any, api: Api) -> None:
    await box.run("true")
    assert (await box.info()).restarts == 0
    with pytest.warns(UserWarning, match="suspending"):
        await box.suspend()
    await box.resume()
    assert (await box.run("echo here")).stdout == "here\n"
    assert (await box.info()).restarts == 0
    await _delete_pod(box, api)
    with pytest.raises(SandboxRestarted):
        await box.run("true")


async def _delete_pod(box: Any, api: Api) -> None:
    """Returns when another one is ready."""
    old = (await api.get(PODS, box.sandbox, "default")).metadata.uid
    await api.delete(PODS, box.sandbox, "default", grace=0)
    await until(api, PODS, lambda found: box.sandbox in found and _running(found[box.sandbox], old))
    await until(api, SANDBOXES, lambda found: _ready(found[box.sandbox]))


def _running(pod: Any, old: str) -> bool:
    return pod.metadata.uid != old and any(
        one.type == "Ready" and one.status == "True" for one in pod.status.conditions
    )


def _restarted(pod: Any) -> bool:
    [container] = pod.status.container_statuses
    return bool(container.restart_count == 1 and container.ready)


async def _kill_first(box: Any) -> None:
    """What the container runs, which is the oldest sleep; from inside, as any program in it may. It takes whoever asks for it along."""
    try:
        await box.run("kill -9 $(pgrep -o -x sleep)")
    except CommandLost:
        pass


def _ready(sandbox: Any) -> bool:
    return any(one.type == "Ready" and one.true for one in sandbox.status.conditions)


@needs_root
async def test_a_command_that_uses_up_the_memory(box: Any) -> None:
    with pytest.raises(OutOfMemory, match="because the sandbox's memory was used up"):
        await box.run(["python3", "-c", HOG], check=True)
    result = await box.run(["python3", "-c", HOG])
    assert (result.exit_code, result.signal, result.out_of_memory) == (137, 9, True)
    through_shell = await box.run(f"python3 -c '{HOG}'; exit $?")
    assert (through_shell.exit_code, through_shell.out_of_memory) == (137, True)
    process = await box.start(["python3", "-c", HOG])
    assert (await process.result()).out_of_memory
    killed = await box.run("kill -9 $$")
    assert (killed.signal, killed.out_of_memory) == (9, False)
    info = await box.info()
    assert (info.restarts, info.state) == (0, State.READY)


async def test_an_evicted_sandbox_says_why(box: Any, api: Api) -> None:
    """A node that evicts writes this status; here somebody writes it in its place."""
    status = {"phase": "Failed", "reason": "Evicted", "message": "The node was low on resource: ephemeral-storage."}
    await api.patch_status(PODS, box.sandbox, merge_patch({"status": status}), "default")
    await until(api, SANDBOXES, lambda found: not _ready(found[box.sandbox]))
    with pytest.raises(SandboxEvicted, match="low on resource: ephemeral-storage") as caught:
        await box.run("true")
    assert caught.value.reason == "Evicted"


async def test_a_connection_that_is_cut_is_no_restart(cluster: Cluster, api: Api) -> None:
    port = int(cluster.running.router.rpartition(":")[2])
    async with a_cutting_proxy(port, 1, 1 << 30, 1 << 30) as proxy:
        config = Config(data_dir=cluster.data_dir, router=f"http://127.0.0.1:{proxy.port}")
        async with AsyncSandbox.claim("python", config=config) as box:
            running = await under_way(box, api, "runs")
            await proxy.end()
            with pytest.raises(CommandLost) as caught:
                await running
            assert type(caught.value) is CommandLost
            assert (await box.run("echo here")).stdout == "here\n"
