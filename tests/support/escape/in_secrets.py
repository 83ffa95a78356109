"""Attempts on secrets: in environments, arguments, memory, and in what processes may share without being asked."""

from __future__ import annotations

import ctypes
import os

from support.escape.hostile import Absent, Targets, attempt, first, syscall

SHMGET, SHMAT = (29, 194), (30, 196)
MQ_OPEN, MQ_RECEIVE = (240, 180), (243, 183)
MOST = 64 << 20


@attempt()
def environments(t: Targets) -> str | None:
    names = [f"/proc/{pid}/environ" for pid in t.pids()]
    return t.steal_any([*names, "/proc/self/environ", "/proc/1/environ", "/proc/thread-self/environ"])


@attempt()
def command_lines(t: Targets) -> str | None:
    names = [f"/proc/{pid}/{name}" for pid in t.pids() for name in ("cmdline", "comm", "stat", "wchan")]
    return t.steal_any([*names, "/proc/1/cmdline", "/proc/cmdline"])


@attempt()
def where_the_product_is(t: Targets) -> str | None:
    with open(f"/proc/{t['init']}/cmdline", "rb") as file:
        said = file.read()
    return next((f"its arguments tell {word}" for word in t["installed"] if word.encode() in said), None)


@attempt(privileged=True)
def memory(t: Targets) -> str | None:
    return first(lambda pid=pid: _searched(t, pid) for pid in t.pids() if pid not in (os.getpid(), os.getppid()))


def _searched(t: Targets, pid: int) -> str | None:
    """All that can be read of a process, up to a bound."""
    read = 0
    with open(f"/proc/{pid}/maps") as maps, open(f"/proc/{pid}/mem", "rb", buffering=0) as file:
        for line in maps:
            area, rights = line.split()[:2]
            start, end = (int(each, 16) for each in area.split("-"))
            if "rw" not in rights or read > MOST:
                continue
            try:
                file.seek(start)
                data = file.read(end - start)
            except (OSError, OverflowError):
                continue
            read += len(data)
            if t.found(data):
                return f"found in the memory of {pid}"
    return None


@attempt(own_kernel=True)
def mounts_of_the_machine(t: Targets) -> str | None:
    with open("/proc/self/mountinfo") as file:
        seen = {line.split()[4] for line in file}
    return ", ".join(sorted(seen & set(t["machine_mounts"]))) or None


@attempt()
def shared_memory_of_system_v(t: Targets) -> str | None:
    def attached(key: int) -> str | None:
        libc = ctypes.CDLL(None, use_errno=True)
        libc.shmat.restype = ctypes.c_void_p
        number = syscall(SHMGET, key, 0, 0)
        address = libc.shmat(number, None, 0o10000)
        if address is None or address == ctypes.c_void_p(-1).value:
            raise OSError("not attached")
        return f"attached segment {key}" if t.found(ctypes.string_at(address, 256)) else None

    return first(lambda key=key: attached(key) for key in t["segments"])


@attempt()
def shared_memory_files(t: Targets) -> str | None:
    return t.steal_any(
        [f"/dev/shm/{t['shared']}", *(f"/dev/shm/{name}" for name in os.listdir("/dev/shm") if not t["scan"])]
    )


@attempt()
def message_queues(t: Targets) -> str | None:
    name = t["queue"]
    if not name:
        raise Absent("the kernel has no message queues")
    queue = syscall(MQ_OPEN, ctypes.c_char_p(name.encode()), os.O_RDWR | os.O_NONBLOCK, 0, 0)
    buffer = ctypes.create_string_buffer(8192)
    length = syscall(MQ_RECEIVE, queue, buffer, len(buffer), 0, 0)
    syscall((242, 182), queue, buffer, length, 0, 0)  # put back
    return "received a message" if t.found(buffer.raw[:length]) else None
