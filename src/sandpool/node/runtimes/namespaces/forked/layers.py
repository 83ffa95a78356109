"""The writable root of a container: an overlay of read-only layers, mounted in the container's own mount namespace.

This runs with the privileges of the fork server, before the container switches to its own identity. As root, layers are id-mapped so that
files of uid 0 on disk belong to the sandbox's uid 0. The machine's own /usr is not mapped, so a sandbox sees only what is world-readable.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from sandpool.node.runtimes.namespaces.forked import kernel
from sandpool.node.runtimes.namespaces.forked.frames import Refused, doing
from sandpool.node.runtimes.namespaces.forked.mount_sources import NO_LINKS, open_layer
from sandpool.node.runtimes.namespaces.forked.targets import find

MOST_LAYERS = 120
FLAGS = kernel.MS_NOSUID | kernel.MS_NODEV
HELD = os.O_PATH | os.O_DIRECTORY
UPPER, WORK = "-upper", "-work"


@dataclass(frozen=True, slots=True)
class Ids:
    """The machine's id of the sandbox's uid 0, and the user namespace that maps it; 0 if the sandbox has a single id."""

    base: int
    userns: int

    @property
    def root(self) -> tuple[int, int]:
        return self.base, self.base


class Stage:
    """A small tmpfs, only in this mount namespace, on which a root is assembled. It is the current directory meanwhile.

    What the container writes goes to `directory` or, where its size is limited, to the tmpfs itself, which has that size."""

    def __init__(self, directory: str, ids: Ids, storage: int | None) -> None:
        self.ids = ids
        self._directory = directory
        self._storage = storage
        self._names = 0

    def open(self) -> None:
        stage = f"{self._directory}/stage"
        with doing("prepare the writable layer"):
            os.makedirs(stage, mode=0o700, exist_ok=True)
            kernel.mount("tmpfs", stage, "tmpfs", FLAGS, f"mode=0700,size={self._storage or 1 << 20}")
            os.chdir(stage)

    def layer(self, directory: int, shown: str, *, mapped: bool = True) -> str:
        """Mounts an open directory of the machine on the stage; returns its name as a layer."""
        with doing(f"use the layer {shown}"):
            tree = kernel.open_tree("", directory=directory)
            try:
                if mapped and self.ids.userns:
                    map_owners(tree, self.ids.userns, shown)
                name = self._place()
                target = os.open(name, os.O_PATH | os.O_DIRECTORY)
                kernel.move_mount(tree, target)
                os.close(target)
            finally:
                os.close(tree)
        return name

    def writable(self, name: str, files: Mapping[str, str]) -> tuple[str, str]:
        """Creates an upper layer with these files, and the overlay's work directory."""
        above = "" if self._storage else "../"
        upper, work = f"{above}{name}{UPPER}", f"{above}{name}{WORK}"
        with doing("make the writable layer"):
            for path in (upper, work):
                os.mkdir(path, 0o755)
                os.chown(path, *self.ids.root)
            for path, text in files.items():
                self._write(upper, path, text)
        return upper, work

    def _write(self, upper: str, path: str, text: str) -> None:
        parent = os.path.dirname(f"{upper}/{path}")
        if not os.path.isdir(parent):
            os.mkdir(parent, 0o755)
            os.chown(parent, *self.ids.root)
        file = os.open(f"{upper}/{path}", os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644)
        os.write(file, text.encode())
        os.fchown(file, *self.ids.root)
        os.close(file)

    def overlay(self, lower: Sequence[str], name: str, files: Mapping[str, str], target: str = "") -> str:
        """Mounts an overlay of the layers, topmost first, with a writable one above; returns its path."""
        if len(lower) > MOST_LAYERS:
            raise Refused("InvalidImage", f"the image has more than {MOST_LAYERS} layers")
        upper, work = self.writable(name, files)
        options = f"lowerdir={':'.join(lower or [self._place()])},upperdir={upper},workdir={work}"
        if not self.ids.userns:
            options += ",userxattr"  # overlayfs must keep its marks in attributes that an ordinary user may write
        with doing("mount an overlay, which as an ordinary user needs Linux 5.11 or later", "Overlay"):
            place = target or self._place()
            kernel.mount("overlay", place, "overlay", FLAGS, options)
        return place

    def _place(self) -> str:
        name = str(self._names)
        self._names += 1
        os.mkdir(name, 0o700)
        return name


def map_owners(tree: int, userns: int, path: str) -> None:
    try:
        kernel.mount_setattr(tree, 0, userns)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOSYS, errno.EPERM):
            raise
        raise Refused(
            "MappedMounts",
            f"the file system of {path} cannot map owners; keep the data on ext4, xfs or btrfs with Linux 5.12 or later, "
            "or run sandpool as an ordinary user",
        ) from error


def host_root(stage: Stage, layers: Sequence[str], skeleton: str, files: Mapping[str, str]) -> str:
    """A root with the machine's own programs below the layers: one overlay for our files, one for /usr."""
    with doing("use the machine's own programs"), ExitStack() as kept:
        opened = [(path, _kept(kept, open_layer(path))) for path in layers]
        opened.append((skeleton, _kept(kept, os.open(skeleton, HELD))))
        root = stage.overlay([stage.layer(directory, path) for path, directory in opened], "root", files)
        inside = _kept(kept, os.open(root, HELD))
        lower = [
            stage.layer(_kept(kept, usr), f"{path}/usr")
            for path, directory in opened
            if (usr := _own_directory(directory, "usr")) is not None
        ]
        lower.append(stage.layer(_kept(kept, os.open("/usr", HELD)), "/usr", mapped=False))
        stage.overlay(lower, "usr", {}, kernel.here(_kept(kept, find(inside, "usr", HELD))))
        for name in split_directories():
            _lay_read_only(_kept(kept, os.open(f"/{name}", HELD)), _kept(kept, find(inside, name, HELD)))
    return root


def _kept(files: ExitStack, file: int) -> int:
    files.callback(os.close, file)
    return file


def _own_directory(layer: int, name: str) -> int | None:
    """A directory of the layer itself, not a link; None if there is none."""
    try:
        return kernel.openat2(layer, name, HELD, NO_LINKS)
    except OSError:
        return None


def _lay_read_only(source: int, target: int) -> None:
    tree = kernel.open_tree("", directory=source)
    kernel.mount_setattr(tree, kernel.ATTR_RDONLY | kernel.ATTR_NOSUID | kernel.ATTR_NODEV)
    kernel.move_mount(tree, target)
    os.close(tree)


def split_directories() -> list[str]:
    """The directories of programs that this machine keeps beside /usr instead of in it."""
    names = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")
    return [name for name in names if os.path.isdir(f"/{name}") and not os.path.islink(f"/{name}")]


def image_root(stage: Stage, layers: Sequence[str], files: Mapping[str, str]) -> str:
    with doing("use the layers of the image"), ExitStack() as kept:
        lower = [stage.layer(_kept(kept, open_layer(path)), path) for path in layers]
        return stage.overlay(lower, "root", files)
