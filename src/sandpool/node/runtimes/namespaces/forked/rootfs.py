"""The file system that a container sees: its root, the kernel's file systems in it, and the mounts of its plan.

The image is hostile: every place in it is found through targets.py, and mounted on as an open file, never by path.
"""

from __future__ import annotations

import contextlib
import os
import stat
from typing import Any

from sandpool.node.openat import give_name, set_owner
from sandpool.node.runtimes.namespaces.forked import kernel
from sandpool.node.runtimes.namespaces.forked.frames import Refused, doing
from sandpool.node.runtimes.namespaces.forked.kernel_files import TREE, mount_dev, mount_proc
from sandpool.node.runtimes.namespaces.forked.layers import Ids, Stage, host_root, image_root, map_owners
from sandpool.node.runtimes.namespaces.forked.owners import shift_owners
from sandpool.node.runtimes.namespaces.forked.sources import copy_source, mounts_of_machine
from sandpool.node.runtimes.namespaces.forked.targets import find, make_file, make_folder

Order = dict[str, Any]
MOUNTED = "mounted"


def build(order: Order, ids: Ids, volumes: dict[int, int]) -> tuple[int, int]:
    """Builds it and makes it the root. The answer is the open folders of the container's terminals and of its /proc."""
    stage = Stage(order["folder"], ids, order["storage"])
    stage.open()
    layers = list(reversed(order["layers"]))
    if order["host"]:
        place = host_root(stage, layers, order["host"], order["files"])
    else:
        place = image_root(stage, layers, order["files"])
    root = os.open(place, os.O_PATH | os.O_DIRECTORY)
    with doing("mount /proc, /dev and /tmp"):
        dev, terminals = mount_dev(root, ids, order["terminals"])
        proc = mount_proc(root, dev, ids)
        os.close(make_folder(root, "tmp", ids.root, 0o1777))
    for number, mount in enumerate(order["mounts"]):
        with doing(f"mount {mount['target']}"):
            place_mount(root, mount, ids, volumes.get(number), proc, order["folder"])
    kernel.mount_setattr(dev, kernel.ATTR_RDONLY)
    os.close(dev)
    if order["read_only"]:
        for name in ("", "usr") if order["host"] else ("",):
            folder = find(root, name)
            kernel.mount_setattr(folder, kernel.ATTR_RDONLY)
            os.close(folder)
    with doing("change the root"):
        os.fchdir(root)
        kernel.pivot_here()
    os.close(root)
    return terminals, proc


def place_mount(
    root: int, mount: Order, ids: Ids, volume: int | None, proc: int | None = None, names: str | None = None
) -> None:
    """Nothing is laid over /proc or anything in it: those who look after the container believe what they read there. `names` is a folder
    of the container's run, where files that are mounted get a name that no sandbox can remove."""
    tree, folder = (volume, True) if volume is not None else bind(mount, ids, names)
    attributes = TREE | (kernel.ATTR_RDONLY if mount["read_only"] else 0)
    kernel.mount_setattr(tree, attributes)
    place = make_folder(root, mount["target"], ids.root) if folder else make_file(root, mount["target"], ids.root)
    if stat.S_ISDIR(os.fstat(place).st_mode) != folder:
        raise Refused(
            "InvalidPath",
            f"{mount['target']} is {'no ' if folder else 'a '}folder in the image, unlike what is mounted",
        )
    if proc is not None and os.fstat(place).st_dev == os.fstat(proc).st_dev:
        raise Refused("InvalidPath", f"{mount['target']} lies in /proc, which is the kernel's; mount it elsewhere")
    kernel.move_mount(tree, place)
    os.close(place)
    os.close(tree)


def bind(mount: Order, ids: Ids, names: str | None) -> tuple[int, bool]:
    """A copy of the mount at the source, and whether it is a folder. Only what we made changes its owner: a folder of the machine, and
    what lies in it, is somebody's."""
    source, tree = copy_source(mount)
    folder = stat.S_ISDIR(os.fstat(source).st_mode)
    if names is not None and mount["counted"] and stat.S_ISREG(os.fstat(source).st_mode):
        keep_name(source, names, mount["target"])
    owner = mount["owner"]
    if owner and ids.userns and mount["ours"] and not mount["read_only"]:
        set_owner(source, *owner)
    if ids.userns:
        try:
            map_owners(tree, ids.userns, mount["source"])
        except Refused:
            if mount["ours"]:
                shift_owners(source, ids.base)
    os.close(source)
    return tree, folder


def keep_name(source: int, folder: str, shown: str) -> None:
    """A mount keeps a file on disk whose names are gone, and nobody has it open then. With this one it counts as long as the folder of
    the run is there, which is as long as anybody holds its mounts (see older.py)."""
    with mounts_of_machine():  # where the source was found: names are given within one mount only
        os.makedirs(f"{folder}/{MOUNTED}", mode=0o700, exist_ok=True)
        names = os.open(f"{folder}/{MOUNTED}", os.O_PATH | os.O_DIRECTORY)
    try:
        file = os.fstat(source)
        if file.st_dev != os.fstat(names).st_dev:
            return  # a file system of its own, which is measured as a whole
        with contextlib.suppress(FileExistsError):  # mounted twice
            give_name(source, str(file.st_ino), names)
    except OSError as error:
        raise Refused(
            "CreateContainerConfigError",
            f"the file for {shown} cannot be kept while it is mounted: {(error.strerror or '').lower()}; "
            "do not remove it while containers start, and give it fewer names",
        ) from error
    finally:
        os.close(names)
