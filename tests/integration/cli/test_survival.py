"""Sandboxes outlive `kill -9` of the cluster, and the next `sandpool up` takes them over."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil

import sandpool as package
from sandpool.controlplane.data_dir import DataDir
from sandpool.node import leftovers
from support.product.cluster import Cluster, running_cluster, sandpool

TESTS = str(Path(__file__).parents[2])
SOURCE = str(Path(package.__file__).parents[1])
PODS = "/api/v1/namespaces/default/pods"
ENDS = "trap 'exit 7' TERM; while :; do sleep 0.1; done"
REAL = ("--backend", "namespaces")


def free_port() -> str:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return str(sock.getsockname()[1])


def again(cluster: Cluster, *flags: str) -> None:
    """Killed, and started as by a supervisor."""
    cluster.kill()
    sandpool("up", *cluster.flag, "--detach", *REAL, *flags)


def pod(name: str, script: str, **more: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": name},
        "spec": {
            "restartPolicy": "Never",
            "containers": [
                {
                    "name": "main",
                    "image": "host",
                    "command": ["/bin/sh", "-c", script],
                    "env": [{"name": "A", "value": "b"}],
                }
            ],
            **more,
        },
    }


def status(cluster: Cluster, name: str) -> dict[str, Any]:
    found: dict[str, Any] = cluster.request("GET", f"{PODS}/{name}")["status"]
    return found


def shims(cluster: Cluster) -> list[Path]:
    return sorted(DataDir(cluster.data_dir).node.glob("runtime/namespaces/shims/*"))


def test_a_command_goes_on_while_its_cluster_is_killed(tmp_path: Path) -> None:
    ports = ("--port", free_port(), "--router-port", free_port())
    cluster = Cluster(tmp_path / "data")
    sandpool("up", *cluster.flag, "--detach", *REAL, "--pool", "python=1", *ports)
    try:
        with subprocess.Popen(
            [sys.executable, "-m", "support.product.counting_client"],
            env={**os.environ, "SANDPOOL_DATA_DIR": str(cluster.data_dir), "PYTHONPATH": f"{SOURCE}:{TESTS}"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        ) as client:
            seen = [counted(client)]
            for _ in range(3):
                again(cluster, "--no-pool", *ports)
                seen.append(counted(client))
            last, _ = client.communicate()
        assert last == "complete\n"
        assert len({pid for _, pid in seen}) == 1, "it is the same process"
        assert [count for count, _ in seen] == sorted(count for count, _ in seen)
        assert not restarted(cluster)
    finally:
        sandpool("down", *cluster.flag)
    assert not leftovers.find(DataDir(cluster.data_dir).node)


def counted(client: subprocess.Popen[str]) -> tuple[int, int]:
    """How far the command has counted, and its pid."""
    assert client.stdin is not None
    assert client.stdout is not None
    client.stdin.write("?\n")
    client.stdin.flush()
    count, pid = client.stdout.readline().split()
    return int(count), int(pid)


def restarted(cluster: Cluster) -> list[str]:
    pods = cluster.request("GET", PODS)["items"]
    containers = [one for each in pods for one in each["status"].get("containerStatuses", ())]
    return [one["containerID"] for one in containers if one["restartCount"]]


def test_pods_are_as_they_were(tmp_path: Path) -> None:
    with running_cluster(tmp_path / "data", *REAL, "--no-pool") as cluster:
        cluster.request("POST", PODS, pod("stays", "echo first; exec sleep 1000"))
        cluster.request("POST", PODS, pod("ends", "while ! [ -e /tmp/go ]; do sleep 0.05; done; exit 7"))
        cluster.request("POST", PODS, pod("leaves", "exec sleep 1000"))
        for name in ("stays", "ends", "leaves"):
            sandpool("wait", f"pod/{name}", "--for", "condition=Ready", *cluster.flag)
        before = status(cluster, "stays")
        assert len(shims(cluster)) == 3
        again(cluster, "--no-pool", "--port", "0")
        sandpool("wait", "pod/stays", "--for", "condition=Ready", *cluster.flag)
        assert status(cluster, "stays") == before
        cluster.request("DELETE", f"{PODS}/leaves?gracePeriodSeconds=0")
        sandpool("wait", "pod/leaves", "--for", "delete", *cluster.flag)
        deadline = time.monotonic() + 60
        while len(shims(cluster)) > 2:  # its object is gone before its processes
            assert time.monotonic() < deadline
            time.sleep(0.02)
        assert len(shims(cluster)) == 2


def test_a_pod_that_ended_or_was_lost_meanwhile(tmp_path: Path) -> None:
    with running_cluster(tmp_path / "data", *REAL, "--no-pool") as cluster:
        always = {"restartPolicy": "Always"}
        cluster.request("POST", PODS, pod("ends", ENDS))
        cluster.request("POST", PODS, pod("lost", 'echo "A is $A"; exec sleep 1000', **always))
        for name in ("ends", "lost"):
            sandpool("wait", f"pod/{name}", "--for", "condition=Ready", *cluster.flag)
        uid = cluster.request("GET", f"{PODS}/lost")["metadata"]["uid"]
        cluster.kill()
        node = DataDir(cluster.data_dir).node
        found = leftovers.shim_pids(node)
        assert len(found) == 2
        os.kill(found.pop(uid), signal.SIGKILL)
        (other,) = found.values()
        (command,) = [each for each in psutil.Process(other).children(recursive=True) if ENDS in each.cmdline()]
        command.terminate()
        sandpool("up", *cluster.flag, "--detach", *REAL, "--no-pool", "--port", "0")
        sandpool("wait", "pod/ends", "--for", "jsonpath={.status.phase}=Failed", *cluster.flag)
        (ended,) = status(cluster, "ends")["containerStatuses"]
        assert ended["state"]["terminated"]["exitCode"] == 7
        sandpool("wait", "pod/lost", "--for", "condition=Ready", *cluster.flag)
        (again_started,) = status(cluster, "lost")["containerStatuses"]
        assert again_started["restartCount"] == 1


def test_a_cluster_that_cannot_take_them_over_ends_them(tmp_path: Path) -> None:
    with running_cluster(tmp_path / "data", *REAL, "--no-pool") as cluster:
        cluster.request("POST", PODS, pod("stays", "exec sleep 1000"))
        sandpool("wait", "pod/stays", "--for", "condition=Ready", *cluster.flag)
        cluster.kill()
        (shim,) = leftovers.shim_pids(DataDir(cluster.data_dir).node).values()
        sandpool("up", *cluster.flag, "--detach", "--backend", "hollow", "--no-pool", "--port", "0")
        assert not Path(f"/proc/{shim}/exe").exists()
        assert not leftovers.shim_pids(DataDir(cluster.data_dir).node)
