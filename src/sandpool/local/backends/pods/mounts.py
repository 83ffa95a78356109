"""What a container mounts: its volumes, each path confined to its volume, and the file for its last words."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

from sandpool.local.backends.base import ContainerSpec, PodSecurityContext, VolumeMount
from sandpool.local.backends.runtime import Mount, User
from sandpool.local.errors import NodeError
from sandpool.local.volumes.spec import Volume

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
    source = below(volume.path, wanted.sub_path, where) if wanted.sub_path else volume.path
    within = volume.path if wanted.sub_path else None
    return Mount(target, source, wanted.name, read_only=read_only, owner=_owner(spec, pod), within=within)


def _owner(spec: ContainerSpec, pod: PodSecurityContext) -> User | None:
    uid = spec.security_context.run_as_user if spec.security_context.run_as_user is not None else pod.run_as_user
    if uid is None and pod.fs_group is None:
        return None
    return User(uid or 0, pod.fs_group or 0)


def below(root: Path, sub: str, where: str) -> Path:
    """A path below the root, made as a folder if it is missing. Links are followed as long as they stay below: what has written to the
    volume may have left any. The runtime opens the answer once more, following none."""
    if sub.startswith("/") or ".." in sub.split("/"):
        raise NodeError(_CONFIG, f"{where}: subPath {sub!r} must be relative and without '..'; change it")
    try:
        base = root.resolve(strict=True)
        made = (base / sub).resolve()
        if made != base and base not in made.parents:
            raise NodeError(
                _CONFIG, f"{where}: subPath {sub!r} leads out of the volume through a link; remove the link"
            )
        if not made.exists():
            _make(base, made.relative_to(base))
    except (OSError, RuntimeError) as error:
        raise NodeError(_CONFIG, f"{where}: subPath {sub!r} cannot be used: {error}") from error
    return made


def _make(base: Path, relative: Path) -> None:
    """Step by step from an open folder, following no link that appears meanwhile."""
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    folder = os.open(base, flags)
    try:
        for name in relative.parts:
            with contextlib.suppress(FileExistsError):
                os.mkdir(name, 0o777, dir_fd=folder)
                os.chmod(name, 0o777, dir_fd=folder)  # noqa: S103  # whoever is given the volume may write there
            inner = os.open(name, flags, dir_fd=folder)
            os.close(folder)
            folder = inner
    finally:
        os.close(folder)
