"""What the containers of a pod share: made once, kept alive by nothing but open files.

Network, ipc and hostname belong to the fork-server's user namespace, not to the sandbox's: inside, even uid 0 with every
capability would have no power over them. Only the ids are the sandbox's own.
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

from sandpool.node.runtimes.namespaces.forked import kernel, shares
from sandpool.node.runtimes.namespaces.forked.frames import doing

SIOCSIFFLAGS = 0x8914
UP_AND_RUNNING = 0x41
BACKLOG = 128

Map = Sequence[int]  # first inside, first outside, how many


def share(hostname: str, ids: Map, egress_port: int, quotas: Mapping[str, int]) -> list[int]:
    """The open namespaces (user, net, ipc, uts) and the socket that listens for outgoing traffic."""
    with doing("make the sandbox's namespaces", "Namespaces"):
        told = begin_user_namespace(ids[1], quotas)
        kernel.unshare(kernel.CLONE_NEWNET | kernel.CLONE_NEWIPC | kernel.CLONE_NEWUTS)
        kernel.sethostname(hostname[:64])
        raise_loopback()
        listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        listener.bind(("127.0.0.1", egress_port))
        listener.listen(BACKLOG)
        kept = [os.open(f"/proc/self/ns/{name}", os.O_RDONLY) for name in ("net", "ipc", "uts")]
        return [finish_user_namespace(told, ids), *kept, listener.detach()]


def raise_loopback() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        fcntl.ioctl(sock, SIOCSIFFLAGS, struct.pack("16sh22x", b"lo", UP_AND_RUNNING))
    # Inside nobody has the capability that low ports ask for, and there is nobody to protect from.
    with contextlib.suppress(OSError), open("/proc/sys/net/ipv4/ip_unprivileged_port_start", "w") as file:
        file.write("0")


def begin_user_namespace(owner: int, quotas: Mapping[str, int]) -> int:
    """A process enters a new one, and stays until this process ends, which may write its maps. It says its number over this
    pipe. What the kernel counts by person (watches, queues, locked memory) it also counts for the owner of the namespace: as
    root, that is the first id of the sandbox, who has nothing else, so that no sandbox can use up the machine's own share. An
    ordinary user owns all namespaces, and each gets a part of what that user has."""
    told, say = os.pipe()
    if os.fork() == 0:
        try:
            try:
                if owner:
                    kernel.prctl(kernel.PR_SET_SECUREBITS, kernel.SECBIT_NO_SETUID_FIXUP)  # capabilities stay
                    os.setresuid(owner, owner, owner)
                kernel.unshare(kernel.CLONE_NEWUSER)
                shares.hold(quotas)
                os.write(say, os.readlink("/proc/self").encode())  # its number where /proc was mounted, not here
            except OSError as error:
                os.write(say, f"-{error.errno}".encode())
            signal.pause()
        finally:
            os._exit(0)
    os.close(say)
    return told


def finish_user_namespace(told: int, ids: Map) -> int:
    pid = os.read(told, 64).decode()
    os.close(told)
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
    """Unconnected sockets of a network namespace, in pairs: IPv4, IPv6. Whoever connects them connects in there."""
    with doing("enter the sandbox's network", "Network"):
        kernel.setns(net, kernel.CLONE_NEWNET)
        families = (socket.AF_INET, socket.AF_INET6) * count
        return [socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK).detach() for family in families]
