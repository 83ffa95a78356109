"""Attempts on files: of the machine, of other sandboxes, of the kernel."""

from __future__ import annotations

import ctypes
import fcntl
import os
import stat
import tempfile
from collections.abc import Callable

from support.escape.hostile import Absent, Targets, attempt, every, first, syscall

UP = "../" * 40
NAME_TO_HANDLE, OPEN_BY_HANDLE = (303, 264), (304, 265)
HARMLESS = {(1, 3), (1, 5), (1, 7), (1, 8), (1, 9), (5, 0), (5, 2)}
NULL = os.makedev(1, 3)


@attempt()
def read_by_path(t: Targets) -> str | None:
    return t.steal_any([t["secret"], UP + t["secret"].lstrip("/"), *t["neighbour_files"]])


@attempt()
def read_through_roots_of_processes(t: Targets) -> str | None:
    return t.steal_any(f"/proc/{pid}/root{t['secret']}" for pid in [*t.pids(), "self", "thread-self"])


@attempt()
def read_through_folders_of_processes(t: Targets) -> str | None:
    return t.steal_any(f"/proc/{pid}/cwd/{UP}{t['secret'].lstrip('/')}" for pid in [*t.pids(), "self"])


@attempt(privileged=True)
def read_through_open_files_of_processes(t: Targets) -> str | None:
    def tried(pid: int) -> str | None:
        names = [f"/proc/{pid}/fd/{name}" for name in os.listdir(f"/proc/{pid}/fd")]
        return t.steal_any(name for name in names if stat.S_ISREG(os.stat(name).st_mode))

    return first(lambda pid=pid: tried(pid) for pid in t.pids() if pid != os.getpid())


@attempt(elsewhere="nothing is leaked without isolation either; a_leaked_file_is_noticed gives it one")
def files_left_open(t: Targets) -> str | None:
    return ", ".join(t.files) or None


@attempt()
def climb_out_of_open_folders(t: Targets) -> str | None:
    """From every folder that can be opened, upwards, by steps that no path shows."""

    def climb(path: str) -> str | None:
        folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        for _ in range(40):
            folder = os.open("..", os.O_RDONLY | os.O_DIRECTORY, dir_fd=folder)
        with os.fdopen(os.open(t["secret"].lstrip("/"), os.O_RDONLY, dir_fd=folder), "rb") as file:
            return f"climbed from {path}" if t.found(file.read(4096)) else None

    return first(
        lambda path=path: climb(path) for path in ["/", "/proc/self/cwd", "/tmp", "/dev", "/usr", *t["mounts"]]
    )


@attempt(privileged=True)
def read_by_file_handle(t: Targets) -> str | None:
    """A handle names a file on its file system, wherever it is: one mount of that file system is enough."""

    def opened(mount: str) -> str | None:
        folder = os.open(mount, os.O_RDONLY | os.O_DIRECTORY)
        kind, data = t["handle"]
        raw = bytes.fromhex(data)
        handle = ctypes.create_string_buffer(len(raw).to_bytes(4, "little") + kind.to_bytes(4, "little") + raw)
        file = syscall(OPEN_BY_HANDLE, folder, handle, os.O_RDONLY)
        return f"opened by handle through {mount}" if t.found(os.read(file, 4096)) else None

    return first(lambda mount=mount: opened(mount) for mount in ["/", "/usr", "/tmp", *t["mounts"]])


@attempt(privileged=True)
def make_a_block_device(t: Targets) -> str | None:
    path = f"{t['scratch']}/device-{os.getpid()}"
    os.mknod(path, stat.S_IFBLK | 0o600, os.makedev(*t["device"]))
    os.unlink(path)
    return "made a block device"


@attempt(privileged=True)
def make_a_character_device(t: Targets) -> str | None:
    path = f"{t['scratch']}/memory-{os.getpid()}"
    os.mknod(path, stat.S_IFCHR | 0o600, os.makedev(1, 1))
    os.unlink(path)
    return "made a device of the machine's memory"


@attempt(privileged=True, own_kernel=True)
def devices_of_the_machine(t: Targets) -> str | None:
    """Never opened: some act when they are."""
    seen = []
    for folder, _, names in os.walk("/dev"):
        for name in names:
            found = os.lstat(f"{folder}/{name}")
            number = (os.major(found.st_rdev), os.minor(found.st_rdev))
            device = stat.S_ISBLK(found.st_mode) or (stat.S_ISCHR(found.st_mode) and number not in HARMLESS)
            if device and not 136 <= number[0] <= 143 and os.access(f"{folder}/{name}", os.R_OK):
                seen.append(name)
    return ", ".join(seen[:10]) or None


@attempt(privileged=True, own_kernel=True)
def memory_of_the_kernel(t: Targets) -> str | None:
    def opened(path: str) -> None:
        file = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        if os.fstat(file).st_rdev == NULL:
            raise OSError("covered")

    names = ("/proc/kcore", "/proc/kmsg", "/proc/kpagecount", "/proc/kpageflags", "/proc/kallsyms", "/proc/timer_list",
             "/proc/vmallocinfo", "/proc/sched_debug", "/proc/modules", "/proc/config.gz", "/dev/kmsg", "/dev/mem")  # fmt: skip
    return every({name: lambda name=name: opened(name) for name in names})


@attempt(own_kernel=True)
def system_tree(t: Targets) -> str | None:
    return ", ".join(os.listdir("/sys")) or None


@attempt(privileged=True, own_kernel=True)
def settings_of_the_kernel(t: Targets) -> str | None:
    """Opened for writing, and nothing written: that the kernel lets us is enough."""
    names = ["/proc/sysrq-trigger", "/sys/kernel/uevent_helper", "/sys/power/state", "/proc/irq/default_smp_affinity"]
    for folder, _, inner in os.walk("/proc/sys"):
        names += [f"{folder}/{name}" for name in inner]
    for folder in ("/sys/fs/cgroup", *(f"/sys/fs/cgroup/{each}" for each in ("memory", "devices", "unified"))):
        names += [f"{folder}/{name}" for name in ("release_agent", "cgroup.procs", "tasks", "devices.allow")]
    tries: dict[str, Callable[..., object]] = {
        name: lambda name=name: os.close(os.open(name, os.O_WRONLY)) for name in names if os.path.isfile(name)
    }
    said = every(tries)
    return said[:300] if said else None


@attempt()
def write_by_path(t: Targets) -> str | None:
    """Whether it was the machine's file is seen outside."""
    first(lambda path=path: _append(path) for path in (t["victim_file"], f"/proc/1/root{t['victim_file']}"))
    return None


def _append(path: str) -> str:
    with open(path, "a") as file:
        file.write("written by a sandbox\n")
    return path


@attempt()
def write_to_the_programs_of_the_machine(t: Targets) -> str | None:
    """Inside, these are /usr through an overlay; what counts is seen outside."""
    for path in t["programs"]:
        with open(path, "ab") as file:
            file.write(b"#")
        os.chmod(path, 0o4777)
    for path in t["programs"]:
        os.rename(path, f"{path}-moved")
    with open(t["new_program"], "w") as file:
        file.write("new")
    return None


@attempt()
def write_to_read_only_mounts(t: Targets) -> str | None:
    tries: dict[str, Callable[..., object]] = {}
    for folder in t["read_only"]:
        file = f"{folder}/file"
        tries |= {
            f"create in {folder}": lambda folder=folder: open(f"{folder}/new", "w").close(),
            f"append to {file}": lambda file=file: _append(file),
            f"change the mode of {file}": lambda file=file: os.chmod(file, 0o777),
            f"touch {file}": lambda file=file: os.utime(file),
            f"truncate {file}": lambda file=file: os.truncate(file, 0),
            f"reopen {file}": lambda file=file: _reopen(file),
            f"hard link in {folder}": lambda file=file, folder=folder: os.link(file, f"{folder}/hard"),  # type: ignore[misc]
            f"mark {file}": lambda file=file: os.setxattr(file, "user.mark", b"x"),
            f"rename {file}": lambda file=file: os.rename(file, f"{file}-moved"),
        }
    return every(tries)


def _reopen(path: str) -> None:
    reading = os.open(path, os.O_RDONLY)
    os.close(os.open(f"/proc/self/fd/{reading}", os.O_RDWR))


@attempt()
def follow_links_in_volumes(t: Targets) -> str | None:
    return t.steal_any(t["links"])


@attempt()
def link_a_file_of_the_machine_into_a_volume(t: Targets) -> str | None:
    """A hard link to it, or a link that something with more rights may follow later."""
    own = f"{t['scratch']}/hard-{os.getpid()}"
    try:
        os.link(t["secret"], own)
        return t.steal(own)
    finally:
        if os.path.exists(own):
            os.unlink(own)


@attempt()
def paths_of_the_machine_in_proc(t: Targets) -> str | None:
    """Where the product keeps its data is nobody's business inside."""
    names = ("/proc/self/cgroup", "/proc/self/environ", "/proc/self/cmdline", "/proc/self/maps")
    return first(lambda name=name: _mentions(name, t["folder"]) for name in names) or _where_we_are(t)


def _mentions(name: str, words: str) -> str | None:
    with open(name, "rb") as file:
        return f"{name} tells {words}" if words.encode() in file.read(1 << 20) else None


def _where_we_are(t: Targets) -> str | None:
    """Without isolation nothing needs to be mounted to know it: the folder itself is there."""
    return f"{t['folder']} is there" if os.path.isdir(t["folder"]) else None


@attempt(privileged=True, capability=21, own_kernel=True)
def disks_of_the_machine_in_sys(t: Targets) -> str | None:
    try:
        return ", ".join(os.listdir("/sys/block")) or None
    except FileNotFoundError:
        raise Absent("there is no /sys/block") from None


@attempt(own_kernel=True)
def make_others_wait_for_a_file(t: Targets) -> str | None:
    """Whoever opens a file on which somebody has a lease waits for him, up to 45 s. The machine opens some that are a sandbox's."""
    with tempfile.NamedTemporaryFile() as file:
        reader = os.open(file.name, os.O_RDONLY)
        try:
            file.file.close()
            fcntl.fcntl(reader, fcntl.F_SETLEASE, fcntl.F_RDLCK)
        finally:
            os.close(reader)
    return "took a lease"
