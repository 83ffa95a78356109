"""Creates volumes of each kind on this machine. All functions block; call them in threads. Errors are NodeError or OSError.

Each volume is a private directory that contains `data`, which the sandbox mounts, and perhaps a file system image. Because no other user
can enter the directory, `data` itself can be open to any user inside the sandbox.
"""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass, field
from pathlib import Path

from sandpool.node.volumes import content, loop_image
from sandpool.node.volumes.claim_locks import ClaimLocks
from sandpool.node.volumes.directories import directory_name, make_directory, make_private, open_directory
from sandpool.node.volumes.host_path import host_path
from sandpool.node.volumes.spec import Claim, Content, EmptyDir, HostPath, Volume, VolumeOptions, VolumeSpec

DATA = "data"
IMAGE = "image.ext4"
_NEXT = "data.new"
_OPEN = 0o777
_OPEN_TO_GROUP = 0o2777  # setgid: files created inside belong to the group, too
_UNHELD = "its size of {size} bytes is not held by this machine; it can fill the disk"
_ON_DISK = "this machine has no folder in memory that we may use: the secret is on disk, readable by us only"


@dataclass(frozen=True, slots=True)
class VolumeRoots:
    """The directories of pod volumes, of claims, and of secrets (in memory)."""

    pods: Path
    claims: Path
    memory: Path | None
    claiming: ClaimLocks = field(default_factory=ClaimLocks)  # pods may share a claim, which is created once

    def of_pod(self, uid: str) -> tuple[Path, ...]:
        return (self.pods / uid, *((self.memory / uid,) if self.memory is not None else ()))


def make_volume(roots: VolumeRoots, options: VolumeOptions, uid: str, spec: VolumeSpec, group: int | None) -> Volume:
    name = directory_name(spec.name, "the name of a volume")
    match spec.source:
        case EmptyDir(memory=True, size=size):
            return Volume(name, tmpfs_size=options.memory_size if size is None else size)
        case EmptyDir(size=size):
            return _sized(name, roots, roots.pods / uid / name, size, group, options)
        case Content() as files:
            return _content(name, roots, uid, files, group)
        case Claim() as claim:
            directory = roots.claims / directory_name(claim.uid, "the uid of a claim")
            with roots.claiming.hold(claim.uid):
                return _sized(name, roots, directory, claim.size, group, options, read_only=claim.read_only)
        case HostPath() as path:
            return Volume(name, path=host_path(name, path, options.host_paths), within=Path("/"))


def detach_volume(directory: Path, *, forever: bool) -> None:
    """Unmounts a volume's image, if it has one. Call it before the directory is moved away (`forever`), or left to the next process."""
    if (directory / IMAGE).exists():
        if forever:
            loop_image.shut_down(directory / DATA)
        loop_image.detach(directory / DATA)


def _sized(
    name: str,
    roots: VolumeRoots,
    directory: Path,
    size: int | None,
    group: int | None,
    options: VolumeOptions,
    *,
    read_only: bool = False,
) -> Volume:
    make_private(directory)
    data, image = directory / DATA, directory / IMAGE
    held = image.exists() or (size is not None and options.images and loop_image.supported() and not data.exists())
    if held:
        loop_image.attach(image, data, size or 0)
        with contextlib.suppress(OSError):
            (
                data / "lost+found"
            ).rmdir()  # created by mkfs; fails, as it should, if a sandbox has put something into it
    _open_directory(directory, group, fresh=held and _empty(data))
    enforced = size is None or held
    measured = (
        directory.parent != roots.claims
    )  # a pod is evicted if its emptyDir grows too large; claims outlive pods and are not measured
    note = "" if enforced or measured else _UNHELD.format(size=size)
    return Volume(
        name, path=data, read_only=read_only, enforced=enforced, image=image if held else None, note=note
    )  # fmt: skip


def _empty(directory: Path) -> bool:
    """Whether the directory is empty. Reads only the first name: a sandbox may have created more names than fit into memory."""
    with os.scandir(directory) as entries:
        return next(entries, None) is None


def _open_directory(directory: Path, group: int | None, *, fresh: bool) -> None:
    """Creates `data` atomically with its final mode. An existing `data` keeps what the sandbox has changed, except for its group."""
    mode = _OPEN if group is None else _OPEN_TO_GROUP
    with open_directory(directory) as within:
        if not fresh and not (directory / DATA).exists():
            make_directory(_NEXT, within, mode)
            os.rename(_NEXT, DATA, src_dir_fd=within, dst_dir_fd=within)
        with open_directory(DATA, within) as data:
            if fresh:
                os.fchmod(data, mode)
            if group is not None and os.fstat(data).st_gid != group and content.give(data, group):
                os.fchmod(data, os.fstat(data).st_mode & 0o7777 | 0o2070)


def _content(name: str, roots: VolumeRoots, uid: str, files: Content, group: int | None) -> Volume:
    in_memory = files.secret and roots.memory is not None
    directory = (roots.memory if in_memory and roots.memory is not None else roots.pods) / uid / name
    make_private(directory)
    with open_directory(directory) as within:
        make_directory(DATA, within, 0o755)
        with open_directory(DATA, within) as data:
            content.write(data, name, files, group)
    return Volume(name, path=directory / DATA, read_only=True, note=_ON_DISK if files.secret and not in_memory else "")
