"""Attempts on processes: those of the machine, those of other sandboxes, and the one that looks after this sandbox."""

from __future__ import annotations

import ctypes
import os
import resource
import signal

from support.escape.hostile import Targets, answered, attempt, first, syscall

PTRACE, VM_READ, VM_WRITE = (101, 117), (310, 270), (311, 271)
PTRACE_ATTACH, PTRACE_DETACH, PTRACE_SEIZE = 16, 17, 0x4206
PIDFD_SEND_SIGNAL, PIDFD_GETFD, KCMP, PROCESS_MADVISE = 424, 438, (312, 272), 440
PR_SET_PTRACER, PR_SET_DUMPABLE = 0x59616D61, 4


class Vector(ctypes.Structure):
    _fields_ = (("base", ctypes.c_void_p), ("length", ctypes.c_size_t))


def _copied(pid: int, address: int, length: int) -> bytes:
    buffer = ctypes.create_string_buffer(length)
    local, remote = Vector(ctypes.addressof(buffer), length), Vector(address, length)
    count = syscall(VM_READ, pid, ctypes.byref(local), 1, ctypes.byref(remote), 1, 0)
    return buffer.raw[:count]


@attempt()
def see_processes_outside(t: Targets) -> str | None:
    def seen(pid: int) -> str | None:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return f"saw process {pid}" if t["mark"].encode() in file.read() else None

    return first(lambda pid=pid: seen(pid) for pid in {*t.pids(), t["victim"], t["neighbour"]} - {0})


@attempt()
def signal_a_process_outside(t: Targets) -> str | None:
    """The victim says itself when it was hit: this answers nothing."""
    os.kill(t["victim"], signal.SIGUSR1)
    return None


@attempt()
def signal_by_pidfd(t: Targets) -> str | None:
    handle = os.pidfd_open(t["victim"])
    syscall(PIDFD_SEND_SIGNAL, handle, int(signal.SIGUSR1), 0, 0)
    return None


@attempt()
def signal_a_group_outside(t: Targets) -> str | None:
    os.killpg(t["victim"], signal.SIGUSR1)
    return None


@attempt()
def signal_by_owner_of_a_pipe(t: Targets) -> str | None:
    """The kernel signals whoever owns a file when something happens to it: make the victim the owner."""
    import fcntl

    reader, writer = os.pipe()
    fcntl.fcntl(reader, fcntl.F_SETOWN, t["victim"])
    fcntl.fcntl(reader, 10, int(signal.SIGUSR1))  # F_SETSIG
    fcntl.fcntl(reader, fcntl.F_SETFL, fcntl.fcntl(reader, fcntl.F_GETFL) | os.O_ASYNC)
    os.write(writer, b"x")
    os.read(reader, 1)
    return None


def _traced(pid: int) -> str:
    syscall(PTRACE, PTRACE_SEIZE, pid, 0, 0)
    return f"traces {pid}"


@attempt(privileged=True)
def trace_a_process_outside(t: Targets) -> str | None:
    return _traced(t["victim"])


@attempt(privileged=True, own_kernel=True)
def trace_init(t: Targets) -> str | None:
    return _traced(t["init"])


@attempt(privileged=True)
def copy_memory_from_outside(t: Targets) -> str | None:
    return "copied a secret" if t.found(_copied(t["victim"], t["victim_address"], 256)) else None


@attempt(privileged=True)
def write_memory_outside(t: Targets) -> str | None:
    buffer = ctypes.create_string_buffer(b"y", 1)
    local, remote = Vector(ctypes.addressof(buffer), 1), Vector(t["victim_spare"], 1)
    return f"wrote {syscall(VM_WRITE, t['victim'], ctypes.byref(local), 1, ctypes.byref(remote), 1, 0)} byte"


@attempt(privileged=True)
def read_memory_file_outside(t: Targets) -> str | None:
    with open(f"/proc/{t['victim']}/mem", "rb", buffering=0) as file:
        file.seek(t["victim_address"])
        return "read a secret" if t.found(file.read(256)) else None


@attempt(privileged=True)
def take_an_open_file_from_outside(t: Targets) -> str | None:
    handle = os.pidfd_open(t["victim"])
    for number in range(3, 10):
        try:
            taken = syscall(PIDFD_GETFD, handle, number, 0)
            if t.found(os.pread(taken, 4096, 0)):
                return f"took file {number}"
        except OSError:
            continue
    return None


@attempt(privileged=True, own_kernel=True)
def compare_with_a_process_outside(t: Targets) -> str | None:
    """Tells where the kernel keeps things; asked about itself it is as good."""
    return answered(lambda: syscall(KCMP, os.getpid(), os.getpid(), 0, 0, 0))


@attempt(privileged=True, own_kernel=True)
def memory_of_init(t: Targets) -> str | None:
    """Pid 1 is forked from what every sandbox is forked from."""
    with open(f"/proc/{t['init']}/maps") as file:
        region = next(line for line in file if "r" in line.split()[1] and "[heap]" in line)
    start, _, end = region.split()[0].partition("-")
    with open(f"/proc/{t['init']}/mem", "rb", buffering=0) as file:
        file.seek(int(start, 16))
        return f"read {len(file.read(int(end, 16) - int(start, 16)))} bytes of pid {t['init']}"


@attempt(privileged=True, own_kernel=True)
def copy_memory_of_init(t: Targets) -> str | None:
    return answered(lambda: _copied(t["init"], 0x1000, 1))


@attempt(privileged=True, own_kernel=True)
def open_files_of_init(t: Targets) -> str | None:
    return _files_of(t["init"])


def _files_of(pid: int) -> str | None:
    names = os.listdir(f"/proc/{pid}/fd")
    return f"pid {pid} has open {', '.join(names)}" if names else None


@attempt(privileged=True, own_kernel=True)
def take_the_socket_of_init(t: Targets) -> str | None:
    """With it one could talk to the main process in the name of pid 1."""
    handle = os.pidfd_open(t["init"])
    return first(lambda number=number: f"took {syscall(PIDFD_GETFD, handle, number, 0)}" for number in range(3, 64))


@attempt(privileged=True, own_kernel=True)
def environment_of_init(t: Targets) -> str | None:
    with open(f"/proc/{t['init']}/environ", "rb") as file:
        return f"read {len(file.read())} bytes"


@attempt(privileged=True, own_kernel=True)
def limits_of_init(t: Targets) -> str | None:
    """Without files pid 1 cannot serve. Set to what they are: that the kernel lets us is enough."""
    resource.prlimit(t["init"], resource.RLIMIT_NOFILE, resource.prlimit(t["init"], resource.RLIMIT_NOFILE))
    return "set a limit of pid 1"


@attempt(privileged=True, own_kernel=True)
def links_of_init(t: Targets) -> str | None:
    return first(lambda name=name: os.readlink(f"/proc/{t['init']}/{name}") for name in ("exe", "root", "cwd"))


@attempt(privileged=True, own_kernel=True)
def namespaces_of_init(t: Targets) -> str | None:
    return os.readlink(f"/proc/{t['init']}/ns/mnt")
