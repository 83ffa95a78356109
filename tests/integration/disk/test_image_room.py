"""Volumes that are file systems in a file: what they take from the disk is what is in them, not what their size is, and it counts for
their pod whether it has a name or not."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

import pytest

from sandpool.node.volumes import loop_image
from sandpool.node.volumes.spec import VolumeOptions
from support.node.pods_node import a_pods_node, runtime_of
from support.node.small_disk import small_disk
from support.simulated.kubelet_node import a_pod

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(not loop_image.supported(), reason="needs root, loop devices and mkfs.ext4"),
]
MIB = 1 << 20


def taken(image: Path) -> int:
    return image.stat().st_blocks * 512


def synced(folder: Path) -> None:
    subprocess.run(["sync", "-f", str(folder)], check=True)


def test_a_large_one_takes_next_to_nothing_and_gives_back_what_is_deleted(tmp_path: Path) -> None:
    image, folder = tmp_path / "image", tmp_path / "folder"
    try:
        loop_image.attach(image, folder, 200 << 30)
    except OSError as error:
        pytest.skip(f"this root may not mount: {error}")
    try:
        empty = taken(image)
        assert empty < 100 * MIB
        with open(folder / "big", "wb") as file:
            for _ in range(64):
                file.write(bytes(MIB))
        synced(folder)
        assert taken(image) > empty + 60 * MIB
        (folder / "big").unlink()
        for _ in range(600):  # blocks are given back after the commit that freed them, by a thread of the kernel
            synced(folder)
            if taken(image) < empty + 16 * MIB:
                break
            time.sleep(0.05)
        else:
            pytest.fail(f"{taken(image)} bytes are still taken, {empty} when it was empty")
    finally:
        loop_image.detach(folder)


HIDDEN = """
import os, time
with open("/scratch/big", "wb", 0) as file:
    os.unlink("/scratch/big")
    for number in range(200): file.write(bytes(1 << 20))
    print("written", flush=True)
    time.sleep(1000)
"""


async def test_a_file_without_a_name_inside_one_counts(tmp_path: Path) -> None:
    probe = await runtime_of("namespaces", tmp_path / "try").probe()
    if not probe.available:
        pytest.skip(f"{probe.reason}: {probe.message}")
    container = {
        "name": "main", "image": "host", "command": ["python3", "-c", HIDDEN],
        "resources": {"limits": {"memory": "256Mi", "ephemeral-storage": "100Mi"}},
        "volumeMounts": [{"name": "scratch", "mountPath": "/scratch"}],
    }  # fmt: skip
    body = a_pod(containers=[container], volumes=[{"name": "scratch", "emptyDir": {"sizeLimit": "400Mi"}}])
    with small_disk(tmp_path, 900 * MIB) as disk:
        async with a_pods_node("namespaces", disk, 32 * MIB, VolumeOptions(memory=(), images=True)) as node:
            await node.create(body)
            pod = await node.until(lambda pod: pod is not None and pod["status"].get("phase") == "Failed")
            assert pod["status"]["reason"] == "Evicted"
            assert "exceeds the total limit of containers 100Mi" in pod["status"]["message"]


FILL = """
try:
    with open("/scratch/big", "wb", 0) as file:
        for number in range(32): file.write(bytes(1 << 20))
except OSError as error: print(error.strerror, flush=True)
"""


async def test_it_holds_when_others_have_run_before(tmp_path: Path) -> None:
    """What is mounted later does not arrive by itself in the namespace that sandboxes are started from."""
    probe = await runtime_of("namespaces", tmp_path / "try").probe()
    if not probe.available:
        pytest.skip(f"{probe.reason}: {probe.message}")
    first = {"name": "main", "image": "host", "command": ["true"]}
    second = {
        "name": "main", "image": "host", "command": ["python3", "-c", FILL],
        "volumeMounts": [{"name": "scratch", "mountPath": "/scratch"}],
    }  # fmt: skip
    async with a_pods_node("namespaces", tmp_path, None, VolumeOptions(memory=(), images=True)) as node:
        await node.create(a_pod(containers=[first], restartPolicy="Never"))
        await node.until(lambda pod: pod is not None and pod["status"].get("phase") == "Succeeded")
        volumes = [{"name": "scratch", "emptyDir": {"sizeLimit": "16Mi"}}]
        await node.create(a_pod("later", containers=[second], volumes=volumes, restartPolicy="Never"))
        await node.until(lambda pod: pod is not None and pod["status"].get("phase") == "Succeeded", "later")
        assert await node.log("later") == "No space left on device\n"


def test_one_that_is_full_is_not_past_its_size(tmp_path: Path) -> None:
    image, folder = tmp_path / "image", tmp_path / "folder"
    try:
        loop_image.attach(image, folder, 8 * MIB)
    except OSError as error:
        pytest.skip(f"this root may not mount: {error}")
    try:
        with pytest.raises(OSError, match="No space left"):
            (folder / "big").write_bytes(bytes(9 * MIB))
        synced(folder)
        assert 6 * MIB < loop_image.disk_usage(image, folder) <= 8 * MIB
    finally:
        loop_image.detach(folder)
