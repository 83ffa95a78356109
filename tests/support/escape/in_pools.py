"""Attempts on what the kernel has but once, for the whole machine: pools that one sandbox could empty for all others, and files
that tell about everybody. Each takes little, but more than a sandbox is given."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import mmap
import os
import resource
import signal
import socket
import struct
import tempfile
from collections.abc import Callable

from support.escape.hostile import Absent, Targets, answered, attempt, every, syscall

FS_IOC_FSGETXATTR, FS_IOC_FSSETXATTR, AT_EMPTY_PATH = 0x801C581F, 0x401C5820, 0x1000
TERMINALS, TIMERS = 200, 5000
OPTION_BYTES, GROUPS = 20480, 1000
WAITED_FOR, NOBODY = 2000, 0xFFFFFFFF
SHOWN = (
    "cmdline", "iomem", "ioports", "zoneinfo", "locks", "buddyinfo", "pagetypeinfo", "slabinfo", "diskstats", "partitions",
    "swaps", "softirqs", "interrupts", "consoles", "mtrr", "mdstat", "schedstat", "keys", "key-users", "kallsyms", "timer_list",
    "config.gz", "modules", "bootconfig", "kpagecount", "kpageflags", "kpagecgroup", "vmallocinfo", "sched_debug",
)  # fmt: skip
FOLDERS = ("acpi", "asound", "bus", "driver", "fs", "irq", "pressure", "scsi", "tty")


@attempt(own_kernel=True)
def contexts_of_asynchronous_io(t: Targets) -> str | None:
    context = ctypes.c_ulong(0)
    syscall((206, 0), 1024, ctypes.byref(context))
    syscall((207, 1), context.value)
    return "took 1024 of the machine's events"


@attempt(own_kernel=True)
def the_program_that_core_files_go_to(t: Targets) -> str | None:
    """A machine may have one, which the kernel starts for each crash, as root and outside of every limit, unless the limit of core files
    is one byte."""

    def lowered(change: Callable[[], object]) -> None:
        change()
        if resource.getrlimit(resource.RLIMIT_CORE)[0] == 1:
            raise OSError("the limit is still one byte")

    limits = (ctypes.c_ulong * 2)(0, 1)
    return every({
        "prlimit": lambda: lowered(lambda: resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))),
        "setrlimit": lambda: lowered(lambda: syscall((160, 164), resource.RLIMIT_CORE, ctypes.byref(limits))),
    })  # fmt: skip


@attempt(own_kernel=True)
def terminals_of_the_machine(t: Targets) -> str | None:
    if not os.path.exists("/dev/ptmx"):
        raise Absent("there are no terminals")
    taken = 0
    try:
        while taken < TERMINALS:
            os.close(os.openpty()[1])
            taken += 1
    except OSError:
        pass
    return f"took {taken} terminals" if taken == TERMINALS else None


@attempt(own_kernel=True)
def programs_for_sockets(t: Targets) -> str | None:
    """Compiled by the kernel, into memory that is counted for the whole machine."""
    program = ctypes.create_string_buffer(struct.pack("=HBBI", 0x06, 0, 0, 0xFFFF))
    given = struct.pack("@HxxxxxxP", 1, ctypes.addressof(program))

    def give(option: int) -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            if option == 51:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
                sock.bind(("127.0.0.1", 0))
            sock.setsockopt(socket.SOL_SOCKET, option, given)

    return every({"filter": lambda: give(26), "choice of a socket": lambda: give(51)})


@attempt(own_kernel=True)
def flow_labels_of_the_machine(t: Targets) -> str | None:
    """There are 4,096, and when three quarters are taken, only root gets one."""
    with _datagrams() as sock:
        to, label, get, shared, create, seconds = socket.inet_pton(socket.AF_INET6, "::1"), 0, 0, 255, 1, 6
        sock.setsockopt(41, 32, to + struct.pack("=IBBHHHI", label, get, shared, create, seconds, seconds, 0))
    return "took a label"


@attempt(own_kernel=True)
def keys_that_sign_segments(t: Targets) -> str | None:
    """The kernel charges them to nobody: with 3,000 sockets a pod of 64 MiB held 546 MiB."""
    peer = struct.pack("=HH4s", socket.AF_INET, 0, socket.inet_aton("127.0.0.2")).ljust(128, b"\0")
    key = peer + struct.pack("=BBHI80s", 0, 0, 80, 0, b"k" * 80)
    extended = peer + struct.pack("=BBHI80s", 1, 32, 80, 0, b"k" * 80)

    def give(option: int, value: bytes) -> None:
        with socket.socket() as sock:
            sock.setsockopt(socket.IPPROTO_TCP, option, value)

    evidence = every({"MD5": lambda: give(14, key), "MD5 of a range": lambda: give(32, extended)})
    if not evidence:
        raise Absent("there are no such keys")
    return evidence


@attempt(own_kernel=True)
def memory_for_the_options_of_a_socket(t: Targets) -> str | None:
    """Charged to nobody, and bounded for each socket, of which there are many."""
    joined = 0
    with _datagrams() as sock, contextlib.suppress(OSError):
        while joined < GROUPS:
            group = socket.inet_pton(socket.AF_INET6, f"ff02::{joined + 1:x}")
            sock.setsockopt(41, 20, group + struct.pack("=I", 1))
            joined += 1
    if joined == GROUPS:
        return f"took room for {joined} groups"
    with open("/proc/sys/net/core/optmem_max") as file:
        if int(file.read()) <= OPTION_BYTES:
            raise Absent("no socket of this machine may")
    return None


@attempt(own_kernel=True)
def protocols_that_nobody_needs(t: Targets) -> str | None:
    """The kernel loads some of them, into the whole machine, when somebody asks; others outlive whoever had them."""
    evidence = every({
        "MPTCP": lambda: socket.socket(socket.AF_INET, socket.SOCK_STREAM, 262).close(),
        "MPTCP over IPv6": lambda: socket.socket(socket.AF_INET6, socket.SOCK_STREAM, 262).close(),
        "UDP-Lite": lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM, 136).close(),
        "SCTP": lambda: socket.socket(socket.AF_INET, socket.SOCK_STREAM, 132).close(),
    })  # fmt: skip
    if not evidence:
        raise Absent("there are none of them")
    return evidence


def _datagrams() -> socket.socket:
    try:
        return socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
    except OSError as error:
        raise Absent("there is no IPv6") from error


@attempt(own_kernel=True)
def rules_that_keep_files_on_the_disk(t: Targets) -> str | None:
    """Landlock holds what its rules name, also when it has neither a name nor is open: it is in nobody's table, and nobody finds it."""
    try:
        syscall(444, None, 0, 1)
    except OSError as error:
        raise Absent("the kernel has no Landlock") from error
    rules = syscall(444, struct.pack("=Q", 1 << 2), 8, 0)
    with tempfile.TemporaryFile() as file:
        syscall(445, rules, 1, struct.pack("=Qi", 1 << 2, file.fileno()), 0)
    os.close(rules)
    return "made a rule"


@attempt(own_kernel=True)
def room_on_the_disk_by_an_attribute(t: Targets) -> str | None:
    """On some file systems a file can have a size in which it grows: one byte then takes gigabytes, before anybody measures."""
    with tempfile.TemporaryFile() as file:
        try:
            attributes = fcntl.ioctl(file, FS_IOC_FSGETXATTR, bytes(28))
        except OSError as error:
            raise Absent("files have no attributes here") from error
        return every({
            "by ioctl": lambda: fcntl.ioctl(file, FS_IOC_FSSETXATTR, attributes),
            "by name": lambda: syscall(469, file.fileno(), b"", bytes(32), 32, AT_EMPTY_PATH),
        })  # fmt: skip


@attempt(own_kernel=True)
def secret_memory(t: Targets) -> str | None:
    """Taken out of the map that the whole kernel uses, whose large pages it breaks up for good."""
    return answered(lambda: os.close(syscall(447, 0)))


@attempt(own_kernel=True)
def go_before_others_at_the_disk(t: Targets) -> str | None:
    return answered(lambda: syscall((251, 30), 1, 0, 0x4000))


@attempt(own_kernel=True)
def a_core_for_oneself(t: Targets) -> str | None:
    """Where a core has two threads, the other one then stands still for everybody else, and nobody is charged for it."""
    try:
        syscall((157, 167), 62, 1, 0, 0, 0)
    except OSError as error:
        if error.errno in (errno.ENODEV, errno.EINVAL):
            raise Absent("the kernel cannot, or a core has but one thread") from error
        raise
    return "has a core"


@attempt(own_kernel=True)
def huge_pages_of_the_machine(t: Targets) -> str | None:
    """Reserved by the operator for somebody else. A file of them can be made wherever the kernel has them at all; a map needs one
    that is free."""
    with open("/proc/meminfo") as file:
        if "HugePages_Total" not in file.read():
            raise Absent("the kernel has none")
    name = ctypes.c_char_p(b"huge")

    def made() -> None:
        os.close(syscall((319, 279), name, 4))

    def mapped() -> None:
        if syscall((9, 222), 0, 1 << 21, 3, 0x40022, -1, 0) < 0:
            raise OSError("there is none")

    return every({"a file": made, "a map": mapped})


@attempt(own_kernel=True)
def timers_of_a_user(t: Targets) -> str | None:
    """Counted, with the signals that wait, by person."""
    made, number = 0, ctypes.c_int()
    try:
        while made < TIMERS:
            syscall((222, 107), 1, 0, ctypes.byref(number))
            made += 1
    except OSError:
        pass
    return f"made {made} timers" if made == TIMERS else None


@attempt(own_kernel=True)
def files_that_tell_of_the_machine(t: Targets) -> str | None:
    def read(name: str) -> None:
        with open(f"/proc/{name}", "rb") as file:
            if not file.read(1):
                raise OSError("it is empty")

    def look(name: str) -> None:
        if not os.listdir(f"/proc/{name}"):
            raise OSError("it is empty")

    return every(
        {name: lambda name=name: read(name) for name in SHOWN}
        | {name: lambda name=name: look(name) for name in FOLDERS}
    )


@attempt(own_kernel=True)
def alarms_about_pressure(t: Targets) -> str | None:
    """The kernel keeps watch for whoever writes here, on its own time."""
    if not os.path.exists("/proc/pressure"):
        raise Absent("the kernel does not measure it")
    file = os.open("/proc/pressure/memory", os.O_RDWR)
    try:
        os.write(file, b"some 500000 2000000\0")
    finally:
        os.close(file)
    return "the kernel watches"


@attempt(own_kernel=True)
def files_that_one_call_waits_for(t: Targets) -> str | None:
    """While it waits, the kernel keeps 72 bytes for each, charged to nobody, also if it is the same file many times: 400 threads that waited for
    20,000 each held 600 MiB, of which a pod was charged for 19."""
    reader, _ = os.pipe()
    entries = ctypes.c_char_p(struct.pack("=ihh", reader, 1, 0) * WAITED_FOR)
    moment = ctypes.c_char_p(bytes(16))
    tries: dict[str, Callable[..., object]] = {
        "ppoll": lambda: syscall((271, 73), entries, WAITED_FOR, moment, 0, 8),
        "pselect": lambda: syscall((270, 72), WAITED_FOR, 0, 0, 0, moment, 0),
    }
    if os.uname().machine == "x86_64":
        tries["poll"] = lambda: syscall(7, entries, WAITED_FOR, 0)
        tries["select"] = lambda: syscall(23, WAITED_FOR, 0, 0, 0, moment)
    return every(tries)


@attempt(own_kernel=True)
def large_access_control_lists(t: Targets) -> str | None:
    """Those of files in memory are kept in memory, charged to nobody: 2,000 files of a pod held 126 MiB, of which it was charged for 5."""
    entries = [(1, 7, NOBODY), *[(2, 7, os.getuid())] * 100, (4, 7, NOBODY), (16, 7, NOBODY), (32, 7, NOBODY)]
    value = struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *entry) for entry in entries)
    file = os.memfd_create("list")
    path = f"/proc/self/fd/{file}"
    evidence = every({
        "by file": lambda: os.setxattr(file, "system.posix_acl_access", value),
        "by name": lambda: os.setxattr(path, "system.posix_acl_access", value),
        "by a new call": lambda: _setxattrat(file, value),
    })  # fmt: skip
    if not evidence:
        os.setxattr(
            file, "system.posix_acl_access", value[:4] + value[4:12] + value[-24:]
        )  # a small one, or there are none
    return evidence


def _setxattrat(file: int, value: bytes) -> None:
    kept = ctypes.create_string_buffer(value)
    given = struct.pack("=QII", ctypes.addressof(kept), len(value), 0)
    syscall(463, file, b"", AT_EMPTY_PATH, b"system.posix_acl_access", given, len(given))


@attempt(own_kernel=True)
def policies_for_memory(t: Targets) -> str | None:
    """One for each page of a file without pages, charged to nobody: 300,000 held 108 MiB."""
    nodes = ctypes.c_char_p(struct.pack("=Q", 1))
    area = mmap.mmap(-1, mmap.PAGESIZE)
    address = ctypes.addressof(ctypes.c_char.from_buffer(area))
    evidence = every({
        "of an area": lambda: syscall((237, 235), address, mmap.PAGESIZE, 1, nodes, 64, 0),
        "of a thread": lambda: syscall((238, 237), 0, 0, 0),
    })  # fmt: skip
    if not evidence:
        raise Absent("the kernel has none")
    return evidence


@attempt(own_kernel=True)
def locks_that_belong_to_no_process(t: Targets) -> str | None:
    """Of a lock, the kernel says only by which process it was taken: not of an open file's, nor if that process has ended."""
    with tempfile.TemporaryFile() as file:
        lock = struct.pack("@hhqqi", fcntl.F_WRLCK, os.SEEK_SET, 0, 1, 0)

        def taken_by_another() -> None:
            child = syscall((56, 220), 0x400 | signal.SIGCHLD, 0, 0, 0, 0)  # CLONE_FILES
            if child == 0:
                os._exit(0)
            os.waitpid(child, 0)

        return every({"of an open file": lambda: fcntl.fcntl(file, 37, lock), "of an ended process": taken_by_another})


@attempt(own_kernel=True)
def pages_merged_with_those_of_others(t: Targets) -> str | None:
    area = mmap.mmap(-1, mmap.PAGESIZE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    try:
        area.madvise(12)
    except OSError as error:
        if not os.path.exists("/sys/kernel/mm/ksm") and os.path.exists("/sys/kernel"):
            raise Absent("the kernel does not merge pages") from error
        raise
    return "the kernel may merge it"


@attempt(own_kernel=True)
def calls_that_nobody_has_looked_at(t: Targets) -> str | None:
    """Newer ones, and those of files that no program needs."""
    with open("/proc/self/ns/net") as file:
        return every({
            "cachestat": lambda: syscall(451, file.fileno(), bytes(16), ctypes.create_string_buffer(40), 0),
            "listxattrat": lambda: syscall(465, -100, b"/", 0, 0, 0),
            "the kind of a namespace": lambda: fcntl.ioctl(file, 0xB703),
        })  # fmt: skip
