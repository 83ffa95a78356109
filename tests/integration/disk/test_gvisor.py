"""The same limits on gVisor, whose kernel holds the files of its sandbox: what it was given, it was given by another process."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from integration.disk.test_limits import DISK, LIMIT, taken_until_evicted, writer
from sandpool.node.disk.plan import allowance
from support.node.pods_node import PodsNode, a_pods_node, runtime_of
from support.node.small_disk import MIB, small_disk
from support.simulated.kubelet_node import a_pod

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small disk needs root"),
]
NAMED = "b = bytes(1 << 20)\nf = open('/scratch/big', 'wb', 0)\nwhile True: f.write(b)"
ATTEMPTS = {
    "a file": NAMED,
    "a file without a name": NAMED.replace("while", "__import__('os').unlink('/scratch/big')\nwhile"),
}


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[PodsNode]:
    probe = await runtime_of("gvisor", tmp_path / "try").probe()
    if not probe.available:
        pytest.skip(f"{probe.reason}: {probe.message}")
    with small_disk(tmp_path, DISK) as disk:
        async with a_pods_node("gvisor", disk, reserve=64 * MIB) as found:
            yield found


@pytest.mark.parametrize("how", ATTEMPTS)
async def test_whoever_writes_too_much_to_a_volume_is_evicted(node: PodsNode, how: str) -> None:
    container = writer(ATTEMPTS[how], volumeMounts=[{"name": "scratch", "mountPath": "/scratch"}])
    body = a_pod(containers=[container], volumes=[{"name": "scratch", "emptyDir": {}}])
    pod, taken = await taken_until_evicted(node, body)
    assert pod["status"]["message"] == "Pod ephemeral local storage usage exceeds the total limit of containers 300Mi. "
    assert taken <= LIMIT + allowance(LIMIT), f"{taken >> 20} MiB"
