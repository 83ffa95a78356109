"""Volumes in memory that the containers of a pod share: mounts in a mount namespace that no process lives in.

The namespace is kept alive by an open file of the main process; closed, all of them are gone.
"""

from __future__ import annotations

import os
from typing import Any

from sandpool.node.runtimes.namespaces.forked import kernel
from sandpool.node.runtimes.namespaces.forked.frames import doing

FLAGS = kernel.MS_NOSUID | kernel.MS_NODEV


def hold(order: dict[str, Any], files: list[int]) -> list[int]:
    """Makes the volumes that are missing; `files` holds the namespace, if there is one yet, and the answer does, if not."""
    with doing("make a volume in memory", "FailedMount"):
        made = [] if files else [_empty_namespace(order["folder"])]
        if files:
            kernel.setns(files[0], kernel.CLONE_NEWNS)
        for volume in order["volumes"]:
            uid, gid = volume["owner"]
            os.mkdir(f"/{volume['name']}", 0o700)
            size = f",size={volume['size']}" if volume["size"] else ""
            options = f"mode=0777,uid={uid},gid={gid}{size}"
            kernel.mount("tmpfs", f"/{volume['name']}", "tmpfs", FLAGS, options)
    return made


def _empty_namespace(folder: str) -> int:
    kernel.unshare(kernel.CLONE_NEWNS)
    namespace = os.open("/proc/self/ns/mnt", os.O_RDONLY)
    kernel.mount("tmpfs", folder, "tmpfs", FLAGS, "size=64k,mode=0700")
    os.chdir(folder)
    kernel.pivot_here()
    return namespace


def take(held: int, mounts: list[dict[str, Any]]) -> dict[int, int]:
    """For each mount that wants one, by number, a copy to be mounted elsewhere."""
    with doing("use a volume in memory", "FailedMount"):
        own = os.open("/proc/self/ns/mnt", os.O_RDONLY)
        kernel.setns(held, kernel.CLONE_NEWNS)
        trees = {
            number: kernel.open_tree(f"/{mount['volume']}")
            for number, mount in enumerate(mounts)
            if mount["source"] is None
        }
        kernel.setns(own, kernel.CLONE_NEWNS)
        os.close(own)
    return trees
