"""What a container mounts: its volumes and the file for its last words. Pure: whoever mounts opens what is named here."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

from sandpool.base.errors import NodeError
from sandpool.node.backend import ContainerSpec, PodSecurityContext, VolumeMount
from sandpool.node.runtimes.contract import Mount, User
from sandpool.node.volumes.spec import Volume

_CONFIG = "CreateContainerConfigError"


def mounts(
    spec: ContainerSpec, volumes: Mapping[str, Volume], pod: PodSecurityContext, message: Path | None
) -> tuple[Mount, ...]:
    """In the order of their depth, so that one below another is not hidden by it."""
    found = [_mount(spec, wanted, volumes, pod) for wanted in spec.volume_mounts]
    if message is not None:
        found.append(Mount(spec.termination_message_path, message, required=False))
    return tuple(sorted(found, key=lambda mount: len(PurePosixPath(mount.target).parts)))


def _mount(spec: ContainerSpec, wanted: VolumeMount, volumes: Mapping[str, Volume], pod: PodSecurityContext) -> Mount:
    where = f"container {spec.name}: volumeMounts {wanted.name!r}"
    volume = volumes.get(wanted.name)
    if volume is None:
        raise NodeError(_CONFIG, f"{where}: the pod has no such volume; add it to spec.volumes")
    target = "/" + wanted.mount_path.lstrip("/")
    if ".." in target.split("/") or os.path.normpath(target) == "/":
        raise NodeError(_CONFIG, f"{where}: mountPath {wanted.mount_path!r} must be a path below the root; change it")
    read_only = wanted.read_only or volume.read_only
    if volume.path is None:
        if wanted.sub_path:
            raise NodeError(_CONFIG, f"{where}: subPath cannot be used with a volume in memory; mount it whole")
        return Mount(target, volume=wanted.name, size=volume.tmpfs_size, read_only=read_only, owner=_owner(spec, pod))
    return Mount(
        target, volume.path, wanted.name, read_only=read_only, owner=_owner(spec, pod), within=volume.within,
        sub_path=_sub_path(wanted.sub_path, where), make=not volume.read_only,
    )  # fmt: skip


def _sub_path(sub: str, where: str) -> str:
    """Only its words are judged here: what it leads to is judged when it is opened, by whoever mounts it."""
    if sub.startswith("/") or ".." in sub.split("/") or "\0" in sub:
        raise NodeError(_CONFIG, f"{where}: subPath {sub!r} must be relative and without '..'; change it")
    return "" if os.path.normpath(sub) == "." else sub


def _owner(spec: ContainerSpec, pod: PodSecurityContext) -> User | None:
    uid = spec.security_context.run_as_user if spec.security_context.run_as_user is not None else pod.run_as_user
    if uid is None and pod.fs_group is None:
        return None
    return User(uid or 0, pod.fs_group or 0)
