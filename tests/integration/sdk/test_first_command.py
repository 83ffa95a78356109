"""From a claim to its first command on real sandboxes: boxd is there before the claim, and as confined as everything inside."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sandpool import Config, Sandbox
from sandpool.model.kinds import POOLS
from support.product.cluster import Cluster, running_cluster
from support.product.cluster_watch import became

PATIENCE = 30.0


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("first") / "data"
    with running_cluster(folder, "--backend", "namespaces", "--pool", "python=2") as found:
        became(found.data_dir, POOLS, lambda pools: pools["python"].status.ready_replicas == 2)
        yield found


def children(pid: int) -> list[int]:
    try:
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def descendants(pid: int) -> Iterator[int]:
    for child in children(pid):
        yield child
        yield from descendants(child)


def name(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode().strip()
    except OSError:
        return ""


def sandboxes(cluster: Cluster) -> dict[int, list[int]]:
    """Of each sandbox: its first process, and the daemons beside its command."""
    found = {}
    for pid in descendants(cluster.running.pid):
        inside = children(pid)
        if any(name(child).startswith("sleep") for child in inside):
            found[pid] = [child for child in inside if not name(child).startswith("sleep")]
    return found


def used(pid: int) -> int:
    """Pages that it has touched for the first time, or copied."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[7])


def until(look: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE
    while not look():
        assert time.monotonic() < end, "it never came to be"
        os.sched_yield()


def confinement(pid: int) -> dict[str, str]:
    lines = dict(line.split(":\t", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    kept = ("Uid", "Gid", "Groups", "CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb", "NoNewPrivs", "Seccomp")
    spaces = {space: os.readlink(f"/proc/{pid}/ns/{space}") for space in ("mnt", "net", "pid", "ipc", "uts", "user")}
    groups = {"groups": Path(f"/proc/{pid}/cgroup").read_text(), "root": os.readlink(f"/proc/{pid}/root")}
    return {key: lines[key] for key in kept} | spaces | groups


def test_boxd_waits_in_the_pool_and_serves_the_claim(cluster: Cluster) -> None:
    until(lambda: [len(daemons) for daemons in sandboxes(cluster).values()] == [1, 1])
    waiting = sandboxes(cluster)
    for first, (daemon,) in waiting.items():
        (command,) = [child for child in children(first) if child != daemon]
        inside = confinement(daemon)
        assert inside == confinement(command), "exactly as what the sandbox itself runs"
        assert inside["Seccomp"] == "2"
        assert int(inside["CapBnd"], 16) == 0
    before = {daemon: used(daemon) for (daemon,) in waiting.values()}
    with Sandbox.claim("python", config=Config(data_dir=cluster.data_dir)) as box:
        assert box.run(["python3", "-c", "print(1)"]).stdout == "1\n"
        served = [daemon for daemon, faults in before.items() if used(daemon) > faults]
        assert len(served) == 1, "the one that waited ran the command; the other one still sleeps"
        assert any(found == served for found in sandboxes(cluster).values())
