"""The file system that a container sees: its root, the kernel's file systems in it, and the mounts of its plan.

The image is hostile: every place in it is found through targets.py, and mounted on as an open file, never by path.
"""

from __future__ import annotations

import os
import stat
from typing import Any

from sandpool.local.backends.namespaces.forked import kernel
from sandpool.local.backends.namespaces.forked.frames import Refused, doing
from sandpool.local.backends.namespaces.forked.layers import FLAGS, Ids, Stage, host_root, image_root, map_owners
from sandpool.local.backends.namespaces.forked.owners import shift_owners
from sandpool.local.backends.namespaces.forked.sources import open_source
from sandpool.local.backends.namespaces.forked.targets import find, make_file, make_folder
from sandpool.local.descriptors import set_owner

DEVICES = ("null", "zero", "full", "random", "urandom", "tty")
LINKS = {"fd": "/proc/self/fd", "stdin": "/proc/self/fd/0", "stdout": "/proc/self/fd/1", "stderr": "/proc/self/fd/2",
         "ptmx": "pts/ptmx"}  # fmt: skip
HIDDEN = ("acpi", "asound", "interrupts", "kallsyms", "kcore", "keys", "key-users", "kpagecount", "kpageflags",
          "latency_stats", "modules", "sched_debug", "scsi", "timer_list", "timer_stats", "vmallocinfo", "config.gz")  # fmt: skip
READ_ONLY = ("bus", "driver", "fs", "irq", "sys", "sysrq-trigger", "tty")
SHM_BYTES = 64 << 20
QUIET = FLAGS | kernel.MS_NOEXEC
TREE = kernel.ATTR_NOSUID | kernel.ATTR_NODEV

Order = dict[str, Any]


def build(order: Order, ids: Ids, volumes: dict[int, int]) -> int:
    """Builds it and makes it the root. The answer is the open folder of the container's terminals."""
    stage = Stage(order["folder"], ids, order["storage"])
    stage.open()
    layers = list(reversed(order["layers"]))
    if order["host"]:
        place = host_root(stage, layers, order["host"], order["files"])
    else:
        place = image_root(stage, layers, order["files"])
    root = os.open(place, os.O_PATH | os.O_DIRECTORY)
    with doing("mount /proc, /dev and /tmp"):
        mount_proc(root, ids)
        dev, terminals = mount_dev(root, ids)
        os.close(make_folder(root, "tmp", ids.root, 0o1777))
    for number, mount in enumerate(order["mounts"]):
        with doing(f"mount {mount['target']}"):
            place_mount(root, mount, ids, volumes.get(number))
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
    return terminals


def mount_proc(root: int, ids: Ids) -> None:
    """The processes of this pid namespace; what tells of the machine, or changes it, is hidden or read-only."""
    target = make_folder(root, "proc", ids.root)
    with doing("mount /proc; the machine's own /proc must be whole for that", "Proc"):
        kernel.mount("proc", kernel.here(target), "proc", QUIET)
    os.close(target)
    proc = find(root, "proc", os.O_PATH | os.O_DIRECTORY)
    for name in HIDDEN:
        _cover(proc, name)
    for name in READ_ONLY:
        try:
            place = find(proc, name)
        except FileNotFoundError:
            continue
        tree = kernel.open_tree("", folder=place)
        kernel.mount_setattr(tree, TREE | kernel.ATTR_RDONLY | kernel.ATTR_NOEXEC)
        kernel.move_mount(tree, place)
        os.close(tree)
        os.close(place)
    os.close(proc)


def _cover(proc: int, name: str) -> None:
    try:
        place = find(proc, name)
    except FileNotFoundError:
        return
    if stat.S_ISDIR(os.fstat(place).st_mode):
        kernel.mount("tmpfs", kernel.here(place), "tmpfs", QUIET | kernel.MS_RDONLY, "size=4k,nr_inodes=2,mode=0555")
    else:
        _lay_over("/dev/null", place)
    os.close(place)


def _lay_over(device: str, place: int) -> None:
    """A device can be written to on a read-only mount; its owner, mode and times cannot be changed."""
    tree = kernel.open_tree(device)
    kernel.mount_setattr(tree, kernel.ATTR_RDONLY | kernel.ATTR_NOSUID | kernel.ATTR_NOEXEC)
    kernel.move_mount(tree, place)
    os.close(tree)


def mount_dev(root: int, ids: Ids) -> tuple[int, int]:
    """The open folder, which is to become read-only when all is mounted, and that of the terminals."""
    target = make_folder(root, "dev", ids.root)
    kernel.mount("tmpfs", kernel.here(target), "tmpfs", kernel.MS_NOSUID | kernel.MS_NOEXEC, "size=64k,mode=0755")
    os.close(target)
    dev = find(root, "dev", os.O_PATH | os.O_DIRECTORY)
    for name in DEVICES:
        place = make_file(dev, name, ids.root)
        _lay_over(f"/dev/{name}", place)
        os.close(place)
    for name, leads_to in LINKS.items():
        os.symlink(leads_to, name, dir_fd=dev)
    shm = make_folder(dev, "shm", ids.root)
    kernel.mount("tmpfs", kernel.here(shm), "tmpfs", QUIET, f"size={SHM_BYTES},mode=1777")
    os.close(shm)
    pts = make_folder(dev, "pts", ids.root)
    group = f",gid={ids.base + 5}" if ids.userns else ""
    kernel.mount(
        "devpts",
        kernel.here(pts),
        "devpts",
        kernel.MS_NOSUID | kernel.MS_NOEXEC,
        f"newinstance,ptmxmode=0666,mode=0620{group}",
    )
    os.close(pts)
    return dev, find(dev, "pts", os.O_PATH | os.O_DIRECTORY)


def place_mount(root: int, mount: Order, ids: Ids, volume: int | None) -> None:
    tree, folder = (volume, True) if volume is not None else bind(mount, ids)
    attributes = TREE | (kernel.ATTR_RDONLY if mount["read_only"] else 0)
    kernel.mount_setattr(tree, attributes)
    place = make_folder(root, mount["target"], ids.root) if folder else make_file(root, mount["target"], ids.root)
    if stat.S_ISDIR(os.fstat(place).st_mode) != folder:
        raise Refused(
            "InvalidPath",
            f"{mount['target']} is {'no ' if folder else 'a '}folder in the image, unlike what is mounted",
        )
    kernel.move_mount(tree, place)
    os.close(place)
    os.close(tree)


def bind(mount: Order, ids: Ids) -> tuple[int, bool]:
    """A copy of the mount at the source, and whether it is a folder."""
    source = open_source(mount)
    folder = stat.S_ISDIR(os.fstat(source).st_mode)
    owner = mount["owner"]
    if owner and ids.userns and not mount["read_only"]:
        set_owner(source, *owner)
    tree = kernel.open_tree("", folder=source)
    if ids.userns:
        try:
            map_owners(tree, ids.userns, mount["source"])
        except Refused:
            if mount["ours"] or not mount["read_only"]:
                shift_owners(source, ids.base, below=mount["ours"])
    os.close(source)
    return tree, folder
