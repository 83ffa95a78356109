"""Pods that have succeeded or failed, on a node: no quota counts them, so they hold nothing but their logs, also after a restart."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from integration.kubelet.test_real import over, ready, running, skip_unless_it_works
from sandpool.model.kinds import PERSISTENT_VOLUME_CLAIMS, PODS
from sandpool.model.metadata import Uid
from sandpool.model.patches import merge_patch
from sandpool.node.backend import BackendError, Exit, PodStatus
from support.node.pods_node import WAIT, Body, PodsNode, a_pods_node
from support.simulated.kubelet_node import a_pod

MANY = 4
EACH = 16 << 20
DEAF = "trap '' TERM; echo up; while true; do sleep 0.05; done"


@pytest.fixture(params=["process", "namespaces"])
async def node(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[PodsNode]:
    await skip_unless_it_works(request.param, tmp_path)
    async with a_pods_node(request.param, tmp_path) as found:
        found.kept = 1000.0  # however slow this machine is
        yield found


MOUNTING = pytest.mark.parametrize("node", ["namespaces"], indirect=True)


async def seen(node: PodsNode, condition: Callable[[PodStatus | None], bool], name: str = "p") -> PodStatus | None:
    """What the backend has of the pod, once it is like that."""
    uid = Uid((await node.get(name))["metadata"]["uid"])
    async with asyncio.timeout(WAIT):
        while not condition(found := node.backend.pod_status(uid)):
            await asyncio.sleep(0.01)
    return found


def reclaimed(found: PodStatus | None) -> bool:
    return found is not None and found.reclaimed


def files(folder: Path) -> list[Path]:
    """Of pods and volumes, also while they are being removed."""
    kept = [folder / name for name in ("pods", "volumes")]
    walks = [found for place in kept for found in os.walk(place)]
    return [Path(place, name) for place, _, names in walks for name in names]


@MOUNTING
async def test_pods_that_filled_their_volumes_and_succeeded_use_no_memory_and_no_disk(node: PodsNode) -> None:
    volumes = [
        {"name": "memory", "emptyDir": {"medium": "Memory", "sizeLimit": str(2 * EACH)}},
        {"name": "disk", "emptyDir": {}},
    ]
    mounts = [{"name": one["name"], "mountPath": f"/{one['name']}"} for one in volumes]
    places = "/memory/x /disk/x /var/x /dev/termination-log"
    fill = f"for place in {places}; do head -c {EACH} /dev/zero > $place || exit 1; done; echo filled"
    uids = []
    for number in range(MANY):
        name = f"p{number}"
        main = running(fill, volumeMounts=mounts)
        await node.create(a_pod(name, containers=[main], volumes=volumes, restartPolicy="Never"))
        pod = await node.until(over, name)
        assert pod["status"]["phase"] == "Succeeded", await node.log(name)
        uids.append(Uid(pod["metadata"]["uid"]))
    async with asyncio.timeout(WAIT):
        while [uid for uid in uids if (await node.backend.stats(uid)).memory_bytes]:
            await asyncio.sleep(0.01)
        while [path for path in files(node.folder) if path.suffix != ".log"]:
            await asyncio.sleep(0.01)
    for number in range(MANY):
        assert await node.log(f"p{number}") == "filled\n"
        await node.gone(f"p{number}")
    await node.clear()
    assert files(node.folder) == []


async def test_after_a_restart_only_its_logs_are_there(node: PodsNode) -> None:
    await node.create(a_pod(containers=[running("echo said; exit 3")], restartPolicy="Never"))
    before = await node.until(over)
    for _ in range(2):
        await seen(node, reclaimed)
        assert await node.log() == "said\n"
        assert (await node.get())["status"] == before["status"]
        await node.restart()
    await seen(node, reclaimed)
    await node.gone()
    await node.clear()
    assert files(node.folder) == []


async def test_one_whose_sidecar_still_ran_at_a_restart_has_succeeded(node: PodsNode) -> None:
    """Its containers had ended for good: nothing is run once more, and nobody waits for what was lost."""
    side = {**running(DEAF, name="side"), "restartPolicy": "Always"}
    await node.create(
        a_pod(
            initContainers=[running("echo first", name="first"), side],
            containers=[running("echo said")],
            restartPolicy="OnFailure",
            terminationGracePeriodSeconds=1000,
        )
    )

    def done(pod: Body | None) -> bool:
        states = [one["state"] for one in pod["status"].get("containerStatuses", ())] if pod is not None else []
        return bool(states) and "terminated" in states[0]

    assert (await node.until(done))["status"]["phase"] == "Running"
    await node.restart()
    pod = await node.until(over)
    first, sidecar = pod["status"]["initContainerStatuses"]
    assert (pod["status"]["phase"], first["restartCount"], sidecar["restartCount"]) == ("Succeeded", 0, 0)
    assert sidecar["state"]["terminated"]["reason"] == "SandpoolRestarted"
    await seen(node, reclaimed)
    assert [await node.log(container=name) for name in ("first", "side", "main")] == ["first\n", "up\n", "said\n"]
    await node.gone()


async def test_sidecars_end_and_are_not_started_again(node: PodsNode) -> None:
    sides = [
        {**running("exec sleep 1000", name="stays"), "restartPolicy": "Always"},
        {**running("exit 1", name="crashes"), "restartPolicy": "Always"},
    ]
    await node.create(a_pod(initContainers=sides, containers=[running("sleep 0.5")], restartPolicy="OnFailure"))
    pod = await node.until(over)
    assert pod["status"]["phase"] == "Succeeded"
    assert all("terminated" in one["state"] for one in pod["status"]["initContainerStatuses"])
    for _ in range(2):
        found = await seen(node, reclaimed)
        assert found is not None
        assert all(isinstance(one.state, Exit) for one in found.init)
        await node.restart()
    assert (await node.get())["status"] == pod["status"]


async def test_a_pod_that_somebody_declares_to_be_over_is(node: PodsNode) -> None:
    """Quotas stop counting it at that very moment."""
    await node.create(a_pod(containers=[running("exec sleep 1000")]))
    await node.until(ready)
    await node.api.patch_status(PODS, "p", merge_patch({"status": {"phase": "Succeeded"}}), "default")
    found = await seen(node, reclaimed)
    assert found is not None
    with pytest.raises(BackendError):
        await node.backend.dial(found.uid, 1)
    await node.gone()


@MOUNTING
async def test_a_claim_is_not_in_use_any_more(node: PodsNode) -> None:
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Mi"}}}
    await node.api.create(PERSISTENT_VOLUME_CLAIMS, {"metadata": {"name": "data"}, "spec": spec}, "default")
    fields: dict[str, Any] = {
        "containers": [running("echo kept > /data/file", volumeMounts=[{"name": "v", "mountPath": "/data"}])],
        "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}],
        "restartPolicy": "Never",
    }
    await node.create(a_pod(**fields))
    await node.until(over)
    await seen(node, reclaimed)
    (kept,) = [path for path in files(node.folder) if path.suffix != ".log"]
    assert kept.read_text() == "kept\n"
    await node.api.delete(PERSISTENT_VOLUME_CLAIMS, "data", "default")
    async with asyncio.timeout(WAIT):
        while await node.volumes.claims():
            await asyncio.sleep(0.01)
