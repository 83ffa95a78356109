"""Builds the file system that a container sees: its root, /proc and /dev in it, and the mounts of its plan.

The image may be hostile: every path in it is resolved through targets.py, and mount points are open files, never paths. Files of /proc that
reveal something about the whole machine are hidden by an empty file or directory; those that could change it are read-only. The load of the
machine stays visible (stat, meminfo, loadavg, uptime, vmstat, cpuinfo), because programs read it, as in any container.
"""

from __future__ import annotations

import contextlib
import os
import stat
from typing import Any

from sandpool.node.openat import link_descriptor, set_owner
from sandpool.node.runtimes.namespaces.forked import kernel
from sandpool.node.runtimes.namespaces.forked.frames import Refused, doing
from sandpool.node.runtimes.namespaces.forked.layers import FLAGS, Ids, Stage, host_root, image_root, map_owners
from sandpool.node.runtimes.namespaces.forked.mount_sources import copy_source, mounts_of_machine
from sandpool.node.runtimes.namespaces.forked.owners import shift_owners
from sandpool.node.runtimes.namespaces.forked.targets import find, make_directory, make_file

DEVICES = ("null", "zero", "full", "random", "urandom", "tty")
LINKS = {"fd": "/proc/self/fd", "stdin": "/proc/self/fd/0", "stdout": "/proc/self/fd/1", "stderr": "/proc/self/fd/2",
         "ptmx": "pts/ptmx"}  # fmt: skip
HIDDEN = frozenset((
    # boot parameters, hardware, and addresses in the kernel
    "acpi", "asound", "bootconfig", "bus", "cmdline", "config.gz", "consoles", "driver", "iomem", "ioports", "irq", "kallsyms",
    "kcore", "mdstat", "modules", "mtrr", "partitions", "scsi", "swaps", "tty", "vmallocinfo",
    # activity of other processes; `pressure` is also writable
    "buddyinfo", "diskstats", "fs", "interrupts", "key-users", "keys", "kmsg", "kpagecgroup", "kpagecount", "kpageflags",
    "latency_stats", "locks", "pagetypeinfo", "pressure", "sched_debug", "schedstat", "slabinfo", "softirqs", "timer_list",
    "timer_stats", "zoneinfo",
))  # fmt: skip
READ_ONLY = frozenset(("sys", "sysrq-trigger"))
ANYBODY = stat.S_IRGRP | stat.S_IROTH | stat.S_IWGRP | stat.S_IWOTH
SHM_BYTES, SHM_FILES = 64 << 20, 16384
QUIET = FLAGS | kernel.MS_NOEXEC
TREE = kernel.ATTR_NOSUID | kernel.ATTR_NODEV


def mount_proc(root: int, dev: int, ids: Ids) -> int:
    """Mounts /proc for this pid namespace. Comes after /dev, because /dev/null is mounted over hidden files. Returns the open directory, which later
    code must use instead of the path, because a volume may be mounted over it."""
    target = make_directory(root, "proc", ids.root)
    with doing("mount /proc; the machine's own /proc must be whole for that", "Proc"):
        kernel.mount("proc", kernel.here(target), "proc", QUIET)
    os.close(target)
    proc = find(root, "proc", os.O_RDONLY | os.O_DIRECTORY)
    names = set(os.listdir(proc))
    _hide(proc, sorted(names & HIDDEN), dev)
    for name in sorted(names & READ_ONLY):
        place = find(proc, name)
        tree = kernel.open_tree("", directory=place)
        kernel.mount_setattr(tree, TREE | kernel.ATTR_RDONLY | kernel.ATTR_NOEXEC)
        kernel.move_mount(tree, place)
        os.close(tree)
        os.close(place)
    return proc


def _hide(proc: int, names: list[str], dev: int) -> None:
    """Hides files below copies of one mount, and directories below copies of another, which is cheaper than a file system for each. Entries that
    only the machine's own root may open are left alone: no id inside is that one."""
    null = find(dev, "null")
    empty = -1
    for name in names:
        mode = os.stat(name, dir_fd=proc, follow_symlinks=False).st_mode
        if not mode & ANYBODY:
            continue
        place = find(proc, name)
        if not stat.S_ISDIR(mode):
            _copy(null, place)
        elif empty >= 0:
            _copy(empty, place)
        else:
            kernel.mount(
                "tmpfs", kernel.here(place), "tmpfs", QUIET | kernel.MS_RDONLY, "size=4k,nr_inodes=2,mode=0555"
            )
            empty = find(proc, name)
        os.close(place)
    os.close(null)
    if empty >= 0:
        os.close(empty)


def _copy(mounted: int, place: int) -> None:
    """Mounts a copy of an existing mount, with its attributes."""
    tree = kernel.open_tree("", directory=mounted)
    kernel.move_mount(tree, place)
    os.close(tree)


def _lay_over(device: str, place: int) -> None:
    """Mounts a device read-only: it can still be written to, but its owner, mode and times cannot be changed."""
    tree = kernel.open_tree(device)
    kernel.mount_setattr(tree, kernel.ATTR_RDONLY | kernel.ATTR_NOSUID | kernel.ATTR_NOEXEC)
    kernel.move_mount(tree, place)
    os.close(tree)


def mount_dev(root: int, ids: Ids, terminals: int) -> tuple[int, int]:
    """Mounts /dev. Returns its open directory, which must become read-only when everything is mounted, and that of devpts. `terminals` limits their
    number, because the kernel has a few thousand for the whole machine."""
    target = make_directory(root, "dev", ids.root)
    kernel.mount("tmpfs", kernel.here(target), "tmpfs", kernel.MS_NOSUID | kernel.MS_NOEXEC, "size=64k,mode=0755")
    os.close(target)
    dev = find(root, "dev", os.O_PATH | os.O_DIRECTORY)
    for name in DEVICES:
        place = make_file(dev, name, ids.root)
        _lay_over(f"/dev/{name}", place)
        os.close(place)
    for name, leads_to in LINKS.items():
        os.symlink(leads_to, name, dir_fd=dev)
    shm = make_directory(dev, "shm", ids.root)
    kernel.mount("tmpfs", kernel.here(shm), "tmpfs", QUIET, f"size={SHM_BYTES},nr_inodes={SHM_FILES},mode=1777")
    os.close(shm)
    pts = make_directory(dev, "pts", ids.root)
    group = f",gid={ids.base + 5}" if ids.userns else ""
    options = f"newinstance,ptmxmode=0666,mode=0620,max={terminals}{group}"
    kernel.mount("devpts", kernel.here(pts), "devpts", kernel.MS_NOSUID | kernel.MS_NOEXEC, options)
    os.close(pts)
    return dev, find(dev, "pts", os.O_PATH | os.O_DIRECTORY)


Request = dict[str, Any]
MOUNTED = "mounted"


def build(request: Request, ids: Ids, volumes: dict[int, int]) -> tuple[int, int]:
    """Builds the root and switches to it. Returns open directories of the container's devpts and /proc."""
    stage = Stage(request["directory"], ids, request["storage"])
    stage.open()
    layers = list(reversed(request["layers"]))
    if request["host"]:
        place = host_root(stage, layers, request["host"], request["files"])
    else:
        place = image_root(stage, layers, request["files"])
    root = os.open(place, os.O_PATH | os.O_DIRECTORY)
    with doing("mount /proc, /dev and /tmp"):
        dev, terminals = mount_dev(root, ids, request["terminals"])
        proc = mount_proc(root, dev, ids)
        os.close(make_directory(root, "tmp", ids.root, 0o1777))
    for number, mount in enumerate(request["mounts"]):
        with doing(f"mount {mount['target']}"):
            place_mount(root, mount, ids, volumes.get(number), proc, request["directory"])
    kernel.mount_setattr(dev, kernel.ATTR_RDONLY)
    os.close(dev)
    if request["read_only"]:
        for name in ("", "usr") if request["host"] else ("",):
            directory = find(root, name)
            kernel.mount_setattr(directory, kernel.ATTR_RDONLY)
            os.close(directory)
    with doing("change the root"):
        os.fchdir(root)
        kernel.pivot_here()
    os.close(root)
    return terminals, proc


def place_mount(
    root: int, mount: Request, ids: Ids, volume: int | None, proc: int | None = None, names: str | None = None
) -> None:
    """Mounts one volume. Nothing may be mounted over /proc or anything in it, because the runtime trusts what it reads there. `names` is a
    directory of the container's run in which mounted files get a second name that no sandbox can remove (see `keep_name`)."""
    tree, directory = (volume, True) if volume is not None else bind(mount, ids, names)
    attributes = TREE | (kernel.ATTR_RDONLY if mount["read_only"] else 0)
    kernel.mount_setattr(tree, attributes)
    place = make_directory(root, mount["target"], ids.root) if directory else make_file(root, mount["target"], ids.root)
    if stat.S_ISDIR(os.fstat(place).st_mode) != directory:
        raise Refused(
            "InvalidPath",
            f"{mount['target']} is {'no ' if directory else 'a '}directory in the image, unlike what is mounted",
        )
    if proc is not None and os.fstat(place).st_dev == os.fstat(proc).st_dev:
        raise Refused("InvalidPath", f"{mount['target']} lies in /proc, which is the kernel's; mount it elsewhere")
    kernel.move_mount(tree, place)
    os.close(place)
    os.close(tree)


def bind(mount: Request, ids: Ids, names: str | None) -> tuple[int, bool]:
    """Returns a copy of the mount at the source, and whether it is a directory. Owners are changed only in volumes that we created: a directory of
    the machine belongs to another user."""
    source, tree = copy_source(mount)
    directory = stat.S_ISDIR(os.fstat(source).st_mode)
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
    return tree, directory


def keep_name(source: int, directory: str, shown: str) -> None:
    """Gives a mounted file a second name. A mount keeps a file on disk after its last name was removed, even if no process has it open. Through this
    name it is still measured while the directory of the run exists, which is as long as its mounts are in use (see removal.py)."""
    with mounts_of_machine():  # where the source was found: a hard link works only within one mount
        os.makedirs(f"{directory}/{MOUNTED}", mode=0o700, exist_ok=True)
        names = os.open(f"{directory}/{MOUNTED}", os.O_PATH | os.O_DIRECTORY)
    try:
        file = os.fstat(source)
        if file.st_dev != os.fstat(names).st_dev:
            return  # a file system of its own, which is measured as a whole
        with contextlib.suppress(FileExistsError):  # mounted twice
            link_descriptor(source, str(file.st_ino), names)
    except OSError as error:
        raise Refused(
            "CreateContainerConfigError",
            f"the file for {shown} cannot be kept while it is mounted: {(error.strerror or '').lower()}; "
            "do not remove it while containers start, and give it fewer names",
        ) from error
    finally:
        os.close(names)
