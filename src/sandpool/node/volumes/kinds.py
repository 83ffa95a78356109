"""One volume of each kind, made on this machine. All of it blocks; it runs in threads. Errors are NodeError or OSError.

Each volume is a folder of ours with `data` in it, which is what a sandbox gets, and perhaps the image of a file system. The
folder is closed to everybody else, so `data` can be open to whichever user runs inside.
"""

from __future__ import annotations

import contextlib
import os
import threading
from dataclasses import dataclass, field
from pathlib import Path

from sandpool.node.volumes import content, images
from sandpool.node.volumes.folders import make, opened, private
from sandpool.node.volumes.host import host_path
from sandpool.node.volumes.names import folder_name
from sandpool.node.volumes.options import VolumeOptions
from sandpool.node.volumes.spec import Claim, Content, EmptyDir, HostPath, Volume, VolumeSpec

DATA = "data"
IMAGE = "image.ext4"
_NEXT = "data.new"
_OPEN = 0o777
_OPEN_TO_GROUP = 0o2777  # what is made inside belongs to the group, too
_UNHELD = "its size of {size} bytes is not held by this machine; it can fill the disk"
_ON_DISK = "this machine has no folder in memory that we may use: the secret is on disk, readable by us only"


@dataclass(frozen=True, slots=True)
class Places:
    """Where the volumes of pods, the claims, and the secrets are."""

    pods: Path
    claims: Path
    memory: Path | None
    claiming: threading.Lock = field(default_factory=threading.Lock)  # pods may share a claim; it is made once

    def of_pod(self, uid: str) -> tuple[Path, ...]:
        return (self.pods / uid, *((self.memory / uid,) if self.memory is not None else ()))


def made(places: Places, options: VolumeOptions, uid: str, spec: VolumeSpec, group: int | None) -> Volume:
    name = folder_name(spec.name, "the name of a volume")
    match spec.source:
        case EmptyDir(memory=True, size=size):
            return Volume(name, tmpfs_size=options.memory_size if size is None else size)
        case EmptyDir(size=size):
            return _sized(name, places, places.pods / uid / name, size, group, options)
        case Content() as files:
            return _content(name, places, uid, files, group)
        case Claim() as claim:
            folder = places.claims / folder_name(claim.uid, "the uid of a claim")
            with places.claiming:
                return _sized(name, places, folder, claim.size, group, options, read_only=claim.read_only)
        case HostPath() as path:
            return Volume(name, path=host_path(name, path, options.host_paths), within=Path("/"))


def unmade(folder: Path, *, forever: bool) -> None:
    """Before a volume's folder is moved away, or left to the next process: nothing may be mounted in it."""
    if (folder / IMAGE).exists():
        if forever:
            images.shut_down(folder / DATA)
        images.detach(folder / DATA)


def _sized(
    name: str,
    places: Places,
    folder: Path,
    size: int | None,
    group: int | None,
    options: VolumeOptions,
    *,
    read_only: bool = False,
) -> Volume:
    private(folder)
    data, image = folder / DATA, folder / IMAGE
    held = image.exists() or (size is not None and options.images and images.possible() and not data.exists())
    if held:
        images.attach(image, data, size or 0)
        with contextlib.suppress(OSError):
            (data / "lost+found").rmdir()  # as mkfs left it; one that has something in it is the sandbox's
    _open_folder(folder, group, fresh=held and _empty(data))
    enforced = size is None or held
    measured = folder.parent != places.claims  # an emptyDir that is too large ends its pod; a claim outlives pods
    note = "" if enforced or measured else _UNHELD.format(size=size)
    return Volume(
        name, path=data, read_only=read_only, enforced=enforced, image=image if held else None, note=note
    )  # fmt: skip


def _empty(folder: Path) -> bool:
    """Only the first name is asked for: a sandbox may have put more there than fits into memory."""
    with os.scandir(folder) as entries:
        return next(entries, None) is None


def _open_folder(folder: Path, group: int | None, *, fresh: bool) -> None:
    """`data` as a sandbox first meets it: there with its mode, or not at all. One that is there keeps what the sandbox made
    of it, but for its group."""
    mode = _OPEN if group is None else _OPEN_TO_GROUP
    with opened(folder) as within:
        if not fresh and not (folder / DATA).exists():
            make(_NEXT, within, mode)
            os.rename(_NEXT, DATA, src_dir_fd=within, dst_dir_fd=within)
        with opened(DATA, within) as data:
            if fresh:
                os.fchmod(data, mode)
            if group is not None and os.fstat(data).st_gid != group and content.give(data, group):
                os.fchmod(data, os.fstat(data).st_mode & 0o7777 | 0o2070)


def _content(name: str, places: Places, uid: str, files: Content, group: int | None) -> Volume:
    in_memory = files.secret and places.memory is not None
    folder = (places.memory if in_memory and places.memory is not None else places.pods) / uid / name
    private(folder)
    with opened(folder) as within:
        make(DATA, within, 0o755)
        with opened(DATA, within) as data:
            content.write(data, name, files, group)
    return Volume(name, path=folder / DATA, read_only=True, note=_ON_DISK if files.secret and not in_memory else "")
