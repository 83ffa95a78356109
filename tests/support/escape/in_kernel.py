"""Attempts on the kernel: calls that have broken walls before, each with arguments that change nothing where it is allowed.

A kernel that was willing complains about the arguments; one that was not, about who asks.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import platform
import resource
import signal
import struct
from collections.abc import Callable

from support.escape.hostile import REFUSED, Absent, Attempt, Targets, add, answered, attempt, every, syscall

SYS_ADMIN, SYS_RESOURCE = 21, 24
HERE = -100  # AT_FDCWD
NOWHERE = b"/nowhere/at/all"
MS_BIND, MS_REMOUNT = 0x1000, 32
NAMESPACES = {"time": 0x80, "mount": 0x20000, "cgroup": 0x2000000, "uts": 0x4000000, "ipc": 0x8000000, "user": 0x10000000,
              "pid": 0x20000000, "net": 0x40000000}  # fmt: skip

Numbers = tuple[int, int]

# name: numbers on x86_64 and arm64, arguments
CALLS: dict[str, tuple[Numbers, tuple[object, ...]]] = {
    "mount": ((165, 40), (b"none", b"/", b"nosuchfs", 0, 0)),
    "pivot_root": ((155, 41), (b"/", b"/")),
    "chroot": ((161, 51), (b"/",)),
    "open_tree": ((428, 428), (HERE, b"/", 1)),
    "fsopen": ((430, 430), (b"tmpfs", 0)),
    "fspick": ((433, 433), (HERE, b"/", 0)),
    "move_mount": ((429, 429), (-1, b"", -1, b"", 0x44)),
    "mount_setattr": ((442, 442), (-1, b"", 0x1000, bytes(32), 32)),
    "bpf": ((321, 280), (0, struct.pack("=IIII", 2, 4, 4, 1) + bytes(100), 72)),
    "perf_event_open": ((298, 241), (0, 0, -1, -1, 0)),
    "io_uring_setup": ((425, 425), (1, bytes(120))),
    "userfaultfd": ((323, 282), (1,)),
    "fanotify_init": ((300, 262), (0, 0)),
    "name_to_handle_at": ((303, 264), (HERE, b"/", 0, 0, 0)),
    "open_by_handle_at": ((304, 265), (HERE, bytes(8), 0)),
    "add_key": ((248, 217), (b"user", b"sandpool-escape", b"x", 1, -2)),
    "request_key": ((249, 218), (b"user", b"sandpool-escape-none", 0, 0)),
    "keyctl": ((250, 219), (0, -2, 1)),
    "kexec_load": ((246, 104), (0, 0, 0, 0xF0F0)),
    "kexec_file_load": ((320, 294), (-1, -1, 0, 0, 0xF0F0)),
    "init_module": ((175, 105), (0, 0, b"")),
    "finit_module": ((313, 273), (-1, b"", 0)),
    "delete_module": ((176, 106), (b"sandpool_no_such_module", 0)),
    "reboot": ((169, 142), (1, 2, 3, 0)),
    "swapon": ((167, 224), (NOWHERE, 0)),
    "swapoff": ((168, 225), (NOWHERE,)),
    "acct": ((163, 89), (NOWHERE,)),
    "quotactl": ((179, 60), (0x80000700, NOWHERE, 0, 0)),
    "syslog": ((103, 116), (10, 0, 0)),
    "vhangup_of_nobody": ((153, 58), ()),
    "settimeofday": ((164, 170), (0, bytes(8))),
    "iopl": ((172, -1), (0,)),
    "ioperm": ((173, -1), (0x80, 1, 0)),
    "modify_ldt": ((154, -1), (0, bytes(16), 16)),
    "process_madvise": ((440, 440), (-1, 0, 0, 0, 0)),
    "move_pages": ((279, 239), (0, 0, 0, 0, 0, 0)),
    "setns": ((308, 268), (-1, 0)),
    "ptrace": ((101, 117), (0x4206, 0x7FFFFFFF, 0, 0)),
    "process_vm_readv": ((310, 270), (0x7FFFFFFF, 0, 0, 0, 0, 0)),
    "lookup_dcookie": ((212, 18), (0, 0, 0)),
}  # fmt: skip
ONLY_OF_ITSELF = {
    "vhangup_of_nobody"
}  # it hangs up the terminal of whoever calls it, who has none: not without isolation
ANY_USER = {"io_uring_setup", "perf_event_open", "add_key", "keyctl", "request_key", "modify_ldt", "move_pages"}


def _table() -> None:
    def body(numbers: Numbers, arguments: tuple[object, ...]) -> Callable[[Targets], str | None]:
        def call() -> int:
            return syscall(numbers, *(ctypes.c_char_p(each) if isinstance(each, bytes) else each for each in arguments))

        return lambda t: answered(call)

    for name, (numbers, arguments) in CALLS.items():
        elsewhere = "it would hang up a terminal; the other calls prove the table" if name in ONLY_OF_ITSELF else ""
        add(Attempt(f"call_{name}", body(numbers, arguments), name not in ANY_USER, None, True, elsewhere))
    for name, flag in NAMESPACES.items():
        add(
            Attempt(
                f"unshare_{name}", lambda t, flag=flag: answered(lambda: syscall((272, 97), flag)), True, None, True
            )
        )
        add(Attempt(f"clone_into_new_{name}", lambda t, flag=flag: _cloned(flag), True, None, True))


def _cloned(flag: int) -> str | None:
    """CLONE_NEWTIME is clone3's alone: the bit means something else to clone."""
    if flag == 0x80:
        return _cloned_by_struct(flag)
    pid = syscall((56, 220), flag | int(signal.SIGCHLD), 0, 0, 0, 0)
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
    return f"a process in namespaces of its own: {flag:#x}"


def _cloned_by_struct(flag: int) -> str | None:
    arguments = struct.pack("=QQQQQQQQ", flag, 0, 0, 0, int(signal.SIGCHLD), 0, 0, 0)
    pid = syscall(435, ctypes.c_char_p(arguments), len(arguments))
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
    return f"a process in namespaces of its own: {flag:#x}"


_table()


@attempt(privileged=True, own_kernel=True)
def clone_by_struct_into_a_user_namespace(t: Targets) -> str | None:
    return _cloned_by_struct(NAMESPACES["user"])


@attempt(privileged=True, own_kernel=True)
def unmount(t: Targets) -> str | None:
    return answered(lambda: syscall((166, 39), ctypes.c_char_p(t["scratch"].encode()), 0))


@attempt(privileged=True, own_kernel=True)
def remount_for_writing(t: Targets) -> str | None:
    call = lambda path: syscall((165, 40), 0, ctypes.c_char_p(path.encode()), 0, MS_REMOUNT | MS_BIND, 0)  # noqa: E731
    return answered(lambda: [call(path) for path in t["read_only"]])  # type: ignore[no-untyped-call]


@attempt(privileged=True, own_kernel=True)
def enter_a_namespace(t: Targets) -> str | None:
    """One's own, so that nothing changes where it is allowed."""
    with open("/proc/self/ns/net") as file:
        return answered(lambda: syscall((308, 268), file.fileno(), 0))


@attempt(privileged=True)
def name_the_machine(t: Targets) -> str | None:
    name = os.uname().nodename.encode()
    return answered(lambda: syscall((170, 161), ctypes.c_char_p(name), len(name)))


@attempt(privileged=True)
def name_the_domain(t: Targets) -> str | None:
    return answered(lambda: syscall((171, 162), ctypes.c_char_p(b"(none)"), 6))


@attempt(privileged=True)
def set_the_clock(t: Targets) -> str | None:
    """To what it is: the status is read and given back."""
    buffer = ctypes.create_string_buffer(256)
    syscall((159, 171), buffer)
    ctypes.c_uint32.from_buffer(buffer).value = 0x10  # ADJ_STATUS
    return answered(lambda: syscall((159, 171), buffer))


@attempt(own_kernel=True)
def capabilities(t: Targets) -> str | None:
    with open("/proc/self/status") as file:
        held = [line.strip() for line in file if line.startswith("Cap") and int(line.split()[1], 16)]
    return "; ".join(held) or None


@attempt(own_kernel=True)
def gain_privileges_by_exec(t: Targets) -> str | None:
    """What a setuid program or file capabilities would give."""
    with open("/proc/self/status") as file:
        return next((line.strip() for line in file if line.startswith("NoNewPrivs") and line.split()[1] == "0"), None)


@attempt(privileged=True, own_kernel=True)
def raise_capabilities(t: Targets) -> str | None:
    """CAP_CHOWN, effective, permitted and inheritable, and then ambient."""
    header = ctypes.c_char_p(struct.pack("=Ii", 0x20080522, 0))
    held = ctypes.create_string_buffer(24)
    syscall((125, 90), header, held)
    effective, permitted, inheritable, *high = struct.unpack("=6I", held.raw)
    wanted = struct.pack("=6I", effective | 1, permitted | 1, inheritable | 1, *high)
    syscall((126, 91), header, ctypes.c_char_p(wanted))
    ambient = syscall((157, 167), 47, 2, 0, 0, 0)
    return f"raised: {ambient}"


@attempt(privileged=True, own_kernel=True)
def give_a_file_capabilities(t: Targets) -> str | None:
    path = f"{t['scratch']}/capable-{os.getpid()}"
    with open(path, "w"):
        pass
    try:
        os.setxattr(path, "security.capability", struct.pack("<IIIII", 0x02000001, 1 << 21, 0, 0, 0))
        return "gave a file CAP_SYS_ADMIN"
    finally:
        os.unlink(path)


@attempt(privileged=True)
def become_another_user(t: Targets) -> str | None:
    """One that the sandbox has not: another sandbox's, or the machine's own."""
    return every({str(uid): lambda uid=uid: os.setresuid(uid, uid, uid) for uid in (4_000_000_000, 70_000)})


@attempt(privileged=True)
def give_away_a_file(t: Targets) -> str | None:
    path = f"{t['scratch']}/given-{os.getpid()}"
    with open(path, "w"):
        pass
    try:
        os.chown(path, 4_000_000_000, 4_000_000_000)
        return "a file belongs to somebody outside"
    finally:
        os.unlink(path)


@attempt(privileged=True, capability=SYS_RESOURCE, own_kernel=True)
def raise_limits(t: Targets) -> str | None:
    names = ("NOFILE", "NPROC", "MEMLOCK", "CORE", "RTPRIO", "NICE", "DATA")

    def raised(name: str) -> None:
        number = getattr(resource, f"RLIMIT_{name}")
        _, hard = resource.getrlimit(number)
        if hard == resource.RLIM_INFINITY:
            raise OSError("there is no limit")
        try:
            resource.setrlimit(number, (hard, hard + 1))
        except ValueError as error:
            raise OSError(str(error)) from None
        if resource.getrlimit(number)[1] <= hard:
            raise OSError("nothing has changed")

    return every({name: lambda name=name: raised(name) for name in names})


@attempt(privileged=True, capability=SYS_RESOURCE, own_kernel=True)
def be_spared_when_memory_is_short(t: Targets) -> str | None:
    """More than the process that looks after all sandboxes."""
    with open("/proc/self/oom_score_adj") as file:
        now = int(file.read())
    with open("/proc/self/oom_score_adj", "w") as file:
        file.write(str(min(now, t["spared"])))
    return f"from {now} to {t['spared']}"


@attempt(privileged=True, own_kernel=True)
def run_before_everybody(t: Targets) -> str | None:
    return every({
        "nice": lambda: os.setpriority(os.PRIO_PROCESS, 0, -5),
        "real time": lambda: os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1)),
    })  # fmt: skip


@attempt(own_kernel=True)
def personality(t: Targets) -> str | None:
    return answered(lambda: syscall((135, 92), 0x0040000))


def _machine_code(code: bytes) -> int:
    area = mmap.mmap(-1, mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    area.write(code)
    address = ctypes.addressof(ctypes.c_char.from_buffer(area))
    return int(ctypes.CFUNCTYPE(ctypes.c_int)(address)())


@attempt(own_kernel=True)
def calls_of_another_architecture(t: Targets) -> str | None:
    """getpid by the entry for 32 bits, whose numbers no filter for 64 bits knows."""
    if platform.machine() != "x86_64":
        raise Absent("only x86_64 has it")
    pid = os.fork()
    if pid == 0:
        got = _machine_code(b"\xb8\x14\x00\x00\x00\xcd\x80\xc3")
        os._exit(0 if got == os.getpid() else 1)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if code in (-signal.SIGSEGV, 1):
        raise Absent("the kernel has no calls of 32 bits")
    return None if code else "called the kernel with 32 bits"


@attempt(own_kernel=True)
def calls_of_x32(t: Targets) -> str | None:
    if platform.machine() != "x86_64":
        raise Absent("only x86_64 has it")
    pid = os.fork()
    if pid == 0:
        try:
            os._exit(0 if syscall(0x40000000 | 39) > 0 else 1)
        except OSError as error:
            os._exit(error.errno or 1)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if code > 0:
        raise Absent("the kernel has no calls of x32")
    return None if code else "called the kernel by x32"


@attempt(privileged=True, own_kernel=True)
def type_into_a_terminal(t: Targets) -> str | None:
    import fcntl
    import termios

    _, slave = os.openpty()
    os.setsid() if os.getpgrp() != os.getpid() else None
    pid = os.fork()
    if pid == 0:
        os.setsid()
        fcntl.ioctl(slave, termios.TIOCSCTTY, 0)
        try:
            fcntl.ioctl(slave, termios.TIOCSTI, b"x")
        except OSError as error:
            os._exit(1 if error.errno in REFUSED else 2)
        os._exit(0)
    return None if os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) else "typed into a terminal"


@attempt(privileged=True)
def control_groups(t: Targets) -> str | None:
    """Its own limits, and the way out of them. Opened, and nothing written."""
    folders = {"/sys/fs/cgroup"}
    with open("/proc/self/cgroup") as file:
        for line in file:
            _, names, path = line.strip().split(":", 2)
            folders |= {f"/sys/fs/cgroup/{name}{path}".rstrip("/") for name in (names, "unified", "")}
    files = ("cgroup.procs", "tasks", "memory.max", "memory.limit_in_bytes", "pids.max", "cpu.max", "cpu.cfs_quota_us")
    tries: dict[str, Callable[..., object]] = {f"{folder}/{name}": lambda folder=folder, name=name: os.close(os.open(f"{folder}/{name}", os.O_WRONLY))
             for folder in sorted(folders) for name in files}  # fmt: skip
    return every(tries)
