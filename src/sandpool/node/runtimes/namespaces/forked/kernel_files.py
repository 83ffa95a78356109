"""/proc and /dev as a container sees them: its own processes and terminals, six harmless devices, little about the machine.

What the kernel tells of the whole machine is hidden below an empty file or folder; what could change it is read-only. How busy
the machine is stays to be seen (stat, meminfo, loadavg, uptime, vmstat, cpuinfo): programs read it, as in any container.
"""

from __future__ import annotations

import os
import stat

from sandpool.node.runtimes.namespaces.forked import kernel
from sandpool.node.runtimes.namespaces.forked.frames import doing
from sandpool.node.runtimes.namespaces.forked.layers import FLAGS, Ids
from sandpool.node.runtimes.namespaces.forked.targets import find, make_file, make_folder

DEVICES = ("null", "zero", "full", "random", "urandom", "tty")
LINKS = {"fd": "/proc/self/fd", "stdin": "/proc/self/fd/0", "stdout": "/proc/self/fd/1", "stderr": "/proc/self/fd/2",
         "ptmx": "pts/ptmx"}  # fmt: skip
HIDDEN = frozenset((
    # how the machine was started, what it is made of, and where things are in its memory
    "acpi", "asound", "bootconfig", "bus", "cmdline", "config.gz", "consoles", "driver", "iomem", "ioports", "irq", "kallsyms",
    "kcore", "mdstat", "modules", "mtrr", "partitions", "scsi", "swaps", "tty", "vmallocinfo",
    # what others do on it, moment by moment; a folder of these takes orders, too (pressure)
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
    """The processes of this pid namespace. After /dev: the empty file that is laid over others is its null. The answer is the open
    folder: whoever asks the kernel later has it from here, since by its path he may come to a volume."""
    target = make_folder(root, "proc", ids.root)
    with doing("mount /proc; the machine's own /proc must be whole for that", "Proc"):
        kernel.mount("proc", kernel.here(target), "proc", QUIET)
    os.close(target)
    proc = find(root, "proc", os.O_RDONLY | os.O_DIRECTORY)
    names = set(os.listdir(proc))
    _hide(proc, sorted(names & HIDDEN), dev)
    for name in sorted(names & READ_ONLY):
        place = find(proc, name)
        tree = kernel.open_tree("", folder=place)
        kernel.mount_setattr(tree, TREE | kernel.ATTR_RDONLY | kernel.ATTR_NOEXEC)
        kernel.move_mount(tree, place)
        os.close(tree)
        os.close(place)
    return proc


def _hide(proc: int, names: list[str], dev: int) -> None:
    """Every file gets a copy of one mount, every folder one of another: cheaper than a file system each. What only the machine's
    own root may open is left as it is: no id inside is that one."""
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
    """With all attributes of the one that is mounted already."""
    tree = kernel.open_tree("", folder=mounted)
    kernel.move_mount(tree, place)
    os.close(tree)


def _lay_over(device: str, place: int) -> None:
    """A device can be written to on a read-only mount; its owner, mode and times cannot be changed."""
    tree = kernel.open_tree(device)
    kernel.mount_setattr(tree, kernel.ATTR_RDONLY | kernel.ATTR_NOSUID | kernel.ATTR_NOEXEC)
    kernel.move_mount(tree, place)
    os.close(tree)


def mount_dev(root: int, ids: Ids, terminals: int) -> tuple[int, int]:
    """The open folder, which is to become read-only when all is mounted, and that of the terminals, of which there can be so
    many: the kernel has a few thousand for the whole machine."""
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
    kernel.mount("tmpfs", kernel.here(shm), "tmpfs", QUIET, f"size={SHM_BYTES},nr_inodes={SHM_FILES},mode=1777")
    os.close(shm)
    pts = make_folder(dev, "pts", ids.root)
    group = f",gid={ids.base + 5}" if ids.userns else ""
    options = f"newinstance,ptmxmode=0666,mode=0620,max={terminals}{group}"
    kernel.mount("devpts", kernel.here(pts), "devpts", kernel.MS_NOSUID | kernel.MS_NOEXEC, options)
    os.close(pts)
    return dev, find(dev, "pts", os.O_PATH | os.O_DIRECTORY)
