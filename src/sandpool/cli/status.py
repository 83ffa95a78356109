"""`sandpool status`: shows the cluster of a data directory and its pools."""

from __future__ import annotations

from typing import Any

import msgspec

from sandpool.base.errors import SandpoolError
from sandpool.cli.exits import FAILED, NOT_FOUND, Exit
from sandpool.cli.flags import DataDirFlag, OutputFlag, data_dir
from sandpool.cli.http import answers, request
from sandpool.controlplane.data_dir import DataDir
from sandpool.kube.local_discovery import Running
from sandpool.model.kinds import CLAIMS, POOLS
from sandpool.node.disk.space import Ballast, Disk, Level, beyond, file_system_space, level


def status(*, data_dir_: DataDirFlag = None, output: OutputFlag = "table") -> None:
    """Show whether the local cluster is running, its API address and kubeconfig, and the state of its pools.

    Exits with 3 if none is running and with 1 if it is not ready.
    """
    directory = data_dir(data_dir_)
    if directory.holder() is None:
        raise Exit(NOT_FOUND, f"no cluster is running in {directory.root}. Start one with `sandpool up`.")
    running = directory.read_running()
    if running is None:
        raise Exit(FAILED, f"the cluster in {directory.root} is still starting")
    healthy = answers(running)
    disk = disk_facts(directory, running.disk_reserve)
    facts = {
        **msgspec.to_builtins(running),
        "healthy": healthy,
        "disk": disk,
        **(_holdings(running) if healthy else {}),
    }
    if output == "json":
        print(msgspec.json.encode(facts).decode())
    else:
        _show(facts)
    if not healthy:
        raise Exit(
            FAILED,
            f"process {running.pid} holds {directory.root} but {running.api} does not answer. Check its output "
            f"({directory.log} if detached), or stop it with `sandpool down`",
        )


def disk_facts(directory: DataDir, reserve: int) -> dict[str, Any]:
    """Read from the file system, without a request to the cluster."""
    held = Ballast(directory.reserve, reserve)
    space = beyond(file_system_space(directory.root), held.missing)
    disk = Disk(level(space, reserve, Level.OK), space, reserve)
    return {"level": disk.level.name.lower(), "free": space.free, "message": disk.message}


def _holdings(running: Running) -> dict[str, Any]:
    """The status of the pools, and the number of claims; empty if the cluster is stopping."""
    try:
        pools = request(running, "GET", POOLS.path())["items"]
        claims = request(running, "GET", f"{CLAIMS.path()}?limit=1")  # the rest is only counted
    except SandpoolError:
        return {}
    return {
        "pools": [pool_facts(pool) for pool in pools],
        "claims": len(claims["items"]) + claims["metadata"].get("remainingItemCount", 0),
    }


def pool_facts(pool: dict[str, Any]) -> dict[str, Any]:
    metadata, counts = pool["metadata"], pool.get("status") or {}
    return {
        "namespace": metadata["namespace"],
        "name": metadata["name"],
        "desired": pool["spec"].get("replicas", 0),
        "ready": counts.get("readyReplicas", 0),
    }


def _show(facts: dict[str, Any]) -> None:
    pools = facts.pop("pools", [])
    disk = facts["disk"]
    del facts["disk_reserve"]  # free space is shown without it
    unheld = facts.pop("unheld")
    if unheld:
        facts["not held"] = ", ".join(unheld)
    left = f"{disk['free'] / (1 << 30):.1f} GiB free"
    facts["disk"] = f"{disk['message']} ({left})" if disk["message"] else left
    width = max(map(len, facts))
    for name, value in facts.items():
        print(f"{name.replace('_', ' '):<{width}}  {value}")
    for pool in pools:
        print(f"{'pool':<{width}}  {pool['namespace']}/{pool['name']}: {pool['ready']} of {pool['desired']} ready")
