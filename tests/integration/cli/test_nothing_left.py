"""`sandpool down` returns when nothing is left of a cluster, however it ended."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest

from sandpool.controlplane.data_dir import DataDir
from sandpool.node import leftovers
from sandpool.node.directory import installation_of
from sandpool.node.leftovers import Leftovers
from support.product.cluster import Cluster, running_cluster, sandpool, stop

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root makes control groups and mounts here")


def alive(pid: int) -> bool:
    try:
        return ") Z" not in Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False


def groups(cluster: Cluster) -> list[str]:
    """By their name, wherever they are."""
    name = f"sandpool-{installation_of(DataDir(cluster.data_dir).node)}"
    return [folder for folder, _, _ in os.walk("/sys/fs/cgroup") if os.path.basename(folder) == name]


def test_the_process_itself_is_gone(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path / "data")
    for _ in range(2):
        cluster.up("--backend", "none", "--no-pool")
        pid = cluster.running.pid
        cluster.down()
        assert not alive(pid)


@pytest.mark.root
@as_root
def test_what_a_killed_cluster_left_is_taken_away(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path / "data")
    cluster.up("--backend", "namespaces", "--no-pool")
    try:
        cluster.request("POST", "/api/v1/namespaces/default/pods", POD)
        sandpool("wait", "pod/p", "--for", "condition=Ready", *cluster.flag)
        left = leftovers.find(DataDir(cluster.data_dir).node)
        assert left.processes
        assert groups(cluster)
        cluster.kill()
        assert groups(cluster), "a killed process takes nothing away"
        done = sandpool("down", *cluster.flag, check=False)
        assert (done.returncode, done.stderr) == (0, "")
        assert groups(cluster) == []
        assert not any(map(alive, left.processes))
        assert sandpool("down", *cluster.flag, check=False).returncode == 3
    finally:
        stop(cluster)


POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "p"},
    "spec": {"containers": [{"name": "main", "image": "host", "command": ["sleep", "1000"]}]},
}


@pytest.mark.root
@as_root
def test_what_stays_is_named(tmp_path: Path) -> None:
    with running_cluster(tmp_path / "data", "--backend", "none", "--no-pool") as cluster:
        busy = cluster.data_dir / "node" / "volumes" / "busy one"
        busy.mkdir(parents=True)
        subprocess.run(["mount", "-t", "tmpfs", "none", str(busy)], check=True)
        try:
            with subprocess.Popen(["sleep", "1000"], cwd=busy) as user:
                done = sandpool("down", *cluster.flag, "--timeout", "1s", check=False)
                user.send_signal(signal.SIGKILL)
            assert done.returncode == 4
            assert f"this is left of it: mount {busy}" in done.stderr
            assert sandpool("down", *cluster.flag, check=False).returncode == 0
            assert not os.path.ismount(busy)
        finally:
            if os.path.ismount(busy):
                subprocess.run(["umount", str(busy)], check=True)


def test_how_it_is_told() -> None:
    assert not Leftovers()
    assert str(Leftovers((7,))) == "process 7"
    assert str(Leftovers((1, 2, 3, 4), ("/a",))) == "processes 1, 2, 3 and 1 more; control group /a"
    assert str(Leftovers((), (), ("/m", "/n"))) == "mounts /m, /n"
