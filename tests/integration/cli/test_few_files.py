"""A cluster that may open few files: sandboxes do not take the last ones, the API answers, and the limit is named."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from sandpool.controlplane.data_dir import DataDir
from support.product.cluster import COMMAND, Cluster

FILES = 256
PODS = "/api/v1/namespaces/default/pods"
POOL = "/apis/extensions.agents.x-k8s.io/v1beta1/namespaces/default/sandboxwarmpools/python"
LONGEST = 90.0


def pod(name: str) -> dict[str, Any]:
    main = {"name": "main", "image": "host", "command": ["sleep", "1000"]}
    return {"metadata": {"name": name}, "spec": {"containers": [main], "terminationGracePeriodSeconds": 0}}


def why(found: dict[str, Any]) -> str:
    """What the pod waits for; `runs` if it does."""
    statuses = found.get("status", {}).get("containerStatuses") or [{}]
    state = statuses[0].get("state", {})
    waiting = state.get("waiting", {})
    return "runs" if "running" in state else f"{waiting.get('reason', '')}: {waiting.get('message', '')}"


def until(cluster: Cluster, condition: Any) -> list[str]:
    deadline = time.monotonic() + LONGEST
    while True:
        told = [why(found) for found in cluster.request("GET", PODS)["items"]]
        if condition(told):
            return told
        assert time.monotonic() < deadline, told
        time.sleep(0.05)


@pytest.mark.timeout(300)
def test_sandboxes_do_not_take_the_last_files(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path / "data")
    up = [*COMMAND, "up", *cluster.flag, "--port", "0", "--backend", "namespaces", "--pool", "python=40"]
    command = ["prlimit", f"--nofile={FILES}:{FILES}", *up]
    log = tmp_path / "log"
    with log.open("w") as said, subprocess.Popen(command, stderr=said) as process:
        try:
            deadline = time.monotonic() + LONGEST
            while DataDir(cluster.data_dir).read_running() is None:
                assert process.poll() is None, log.read_text()
                assert time.monotonic() < deadline
                time.sleep(0.02)
            refused = f"OutOfDescriptors: too many open files: the server may have {FILES}, and the last"
            until(cluster, lambda told: "runs" in told and any(one.startswith(refused) for one in told))
            cluster.request("POST", PODS, pod("mine"))
            assert len(list(Path(f"/proc/{process.pid}/fd").iterdir())) < FILES - 16
            assert cluster.request("GET", "/api/v1/namespaces/default")["metadata"]["name"] == "default"
            cluster.request("DELETE", POOL)
            cluster.request("DELETE", f"{PODS}/mine")
            until(cluster, lambda told: not told)
            cluster.request("POST", PODS, pod("after"))
            until(cluster, lambda told: told == ["runs"])
        finally:
            process.terminate()
            assert process.wait(60) == 0
    warned = [line for line in log.read_text().splitlines() if "limit of open files is too low" in line]
    assert len(warned) == 1
    assert f"limit={FILES}" in warned[0]
    assert DataDir(cluster.data_dir).holder() is None
