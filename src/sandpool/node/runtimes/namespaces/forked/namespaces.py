"""The namespaces that the containers of a pod share: created once, kept alive only by open files.

The net, ipc and uts namespaces belong to the fork server's user namespace, not to the sandbox's. So even uid 0 with every capability inside
has no privileges over them. Only the user ids are the sandbox's own. For an ordinary user, quotas of user namespaces divide the kernel's
per-user limits among the sandboxes: usage counts in the sandbox's namespace and in every namespace above.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import signal
import socket
import struct
from collections.abc import Mapping, Sequence

from sandpool.node.runtimes.namespaces.forked import kernel
from sandpool.node.runtimes.namespaces.forked.frames import doing

# The sysctl of a user namespace's limit, and that of the machine's limit per user.
COUNTED = {"max_inotify_instances": "max_user_instances", "max_inotify_watches": "max_user_watches"}
ALL_PART, ONE_PART = 2, 8  # a half for all sandboxes, an eighth for one
LEAST = 4


def user_quotas() -> dict[str, int]:
    """The kernel's limits of the current user. Limits that cannot be read are left out."""
    found = {}
    for name, setting in COUNTED.items():
        with contextlib.suppress(OSError, ValueError):
            found[name] = min(_read(f"/proc/sys/user/{name}"), _read(f"/proc/sys/fs/inotify/{setting}"))
    return found


def quotas_of_all(whole: Mapping[str, int]) -> dict[str, int]:
    """The quotas of all sandboxes together; the rest stays for other processes of the user."""
    return {name: max(LEAST, most // ALL_PART) for name, most in whole.items()}


def sandbox_quotas(whole: Mapping[str, int]) -> dict[str, int]:
    return {name: max(LEAST, most // ONE_PART) for name, most in whole.items()}


def set_quotas(bounds: Mapping[str, int]) -> None:
    """Writes the limits of this process's user namespace, which it must have just created. Without a writable /proc/sys there are none."""
    for name, most in bounds.items():
        with contextlib.suppress(OSError):
            file = os.open(f"/proc/sys/user/{name}", os.O_WRONLY)
            try:
                os.write(file, str(most).encode())
            finally:
                os.close(file)


def _read(path: str) -> int:
    with open(path) as file:
        return int(file.read())


SIOCSIFFLAGS = 0x8914
UP_AND_RUNNING = 0x41
BACKLOG = 128
NETWORK_SETTINGS = {
    # No process inside has the capability for low ports, and within the sandbox there is no user to protect from another.
    "ipv4/ip_unprivileged_port_start": 0,
    # Bytes of one socket's options, which the kernel charges to no control group: as before Linux 6.8, instead of 128 KiB.
    # Older kernels have one setting for the whole machine, and none here.
    "core/optmem_max": 20480,
    # Closed connections that the kernel remembers for a minute, charged to no control group either: 256 bytes each, 131,072 by default.
    "ipv4/tcp_max_tw_buckets": 4096,
}

Map = Sequence[int]  # first inside, first outside, how many


def share(hostname: str, ids: Map, egress_port: int, quotas: Mapping[str, int]) -> list[int]:
    """Creates the shared namespaces. Returns the open namespaces (user, net, ipc, uts) and the socket that listens for egress connections."""
    with doing("make the sandbox's namespaces", "Namespaces"):
        reader = begin_user_namespace(ids[1], quotas)
        kernel.unshare(kernel.CLONE_NEWNET | kernel.CLONE_NEWIPC | kernel.CLONE_NEWUTS)
        kernel.sethostname(hostname[:64])
        raise_loopback()
        listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        listener.bind(("127.0.0.1", egress_port))
        listener.listen(BACKLOG)
        kept = [os.open(f"/proc/self/ns/{name}", os.O_RDONLY) for name in ("net", "ipc", "uts")]
        return [finish_user_namespace(reader, ids), *kept, listener.detach()]


def raise_loopback() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        fcntl.ioctl(sock, SIOCSIFFLAGS, struct.pack("16sh22x", b"lo", UP_AND_RUNNING))
    for name, value in NETWORK_SETTINGS.items():
        with contextlib.suppress(OSError), open(f"/proc/sys/net/{name}", "w") as file:
            file.write(str(value))


def lower_loopback() -> None:
    """No connection can be made any more, and none that exists receives anything."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        fcntl.ioctl(sock, SIOCSIFFLAGS, struct.pack("16sh22x", b"lo", 0))


def begin_user_namespace(owner: int, quotas: Mapping[str, int]) -> int:
    """Starts a process that enters a new user namespace and reports its pid over the returned pipe. It stays until this process, which is allowed
    to write its maps, ends. The kernel charges per-user resources (watches, queues, locked memory) also to the owner of the namespace. As root,
    the owner is the first id of the sandbox, which is used for nothing else, so that no sandbox can use up the machine's own share. An
    ordinary user owns all namespaces, and each gets a part of that user's limits."""
    reader, writer = os.pipe()
    if os.fork() == 0:
        try:
            try:
                if owner:
                    kernel.prctl(kernel.PR_SET_SECUREBITS, kernel.SECBIT_NO_SETUID_FIXUP)  # capabilities stay
                    os.setresuid(owner, owner, owner)
                kernel.unshare(kernel.CLONE_NEWUSER)
                set_quotas(quotas)
                os.write(writer, os.readlink("/proc/self").encode())  # its pid in the namespace of the mounted /proc
            except OSError as error:
                os.write(writer, f"-{error.errno}".encode())
            signal.pause()
        finally:
            os._exit(0)
    os.close(writer)
    return reader


def finish_user_namespace(reader: int, ids: Map) -> int:
    pid = os.read(reader, 64).decode()
    os.close(reader)
    if not pid.isdigit():
        number = int(pid[1:] or errno.EAGAIN)
        raise OSError(number, os.strerror(number), "unshare")
    write_maps(f"/proc/{pid}", " ".join(str(number) for number in ids).encode(), groups=ids[2] > 1)
    return os.open(f"/proc/{pid}/ns/user", os.O_RDONLY)


def write_maps(process: str, line: bytes, *, groups: bool) -> None:
    names = [] if groups else [("setgroups", b"deny")]
    for name, text in (*names, ("uid_map", line), ("gid_map", line)):
        file = os.open(f"{process}/{name}", os.O_WRONLY)
        try:
            os.write(file, text)
        finally:
            os.close(file)


def sockets(net: int, count: int) -> list[int]:
    """Unconnected sockets of a network namespace, in pairs of IPv4 and IPv6. Connecting one connects inside that namespace."""
    with doing("enter the sandbox's network", "Network"):
        kernel.setns(net, kernel.CLONE_NEWNET)
        families = (socket.AF_INET, socket.AF_INET6) * count
        return [socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK).detach() for family in families]
