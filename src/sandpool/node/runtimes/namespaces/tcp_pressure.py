"""Finds the sandbox that brings TCP on the whole machine under memory pressure.

Until a connection is accepted, the kernel charges it and the data it received to no control group: a sandbox of 64 MiB held 750 MiB after
four seconds, without an open file. The kernel counts this for the whole machine, and throttles every connection above the second number of
`net.ipv4.tcp_mem`. Before that, the sandbox with the most data waiting in its connections is killed.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from sandpool.node.runtimes.namespaces.forked.cgroups import read

SOCKET_BYTES = 4096  # kernel memory of a connection without data
LEAST = 4 << 20  # bytes: killing a sandbox that uses less would not help
PART = 8
LISTENING = "0A"
TCP_MEM = "/proc/sys/net/ipv4/tcp_mem"
PAGE = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True, slots=True)
class TcpCounts:
    """Numbers from /proc/net/sockstat: TCP sockets of a network namespace; sockets and pages of the whole machine."""

    here: int = 0
    sockets: int = 0
    pages: int = 0

    @property
    def bytes(self) -> int:
        """Bytes that TCP uses on the whole machine."""
        return self.pages * PAGE + self.sockets * SOCKET_BYTES


def tcp_counts(text: str) -> TcpCounts:
    for line in text.splitlines():
        name, *words = line.split()
        if name == "TCP:":
            found = {key: int(value) for key, value in zip(words[::2], words[1::2], strict=False) if value.isdigit()}
            return TcpCounts(found.get("inuse", 0), found.get("alloc", 0), found.get("mem", 0))
    return TcpCounts()


def waiting(text: str) -> int:
    """Bytes in the send and receive queues of the connections in /proc/net/tcp."""
    total = 0
    for line in text.splitlines()[1:]:
        fields = line.split(maxsplit=5)
        if len(fields) > 4 and fields[3] != LISTENING:
            sent, _, received = fields[4].partition(":")
            total += int(sent, 16) + int(received, 16)
    return total


def bound(tcp_mem: str) -> int | None:
    """Bytes on the whole machine above which a sandbox is killed: three quarters of where pressure begins. None if that is not known."""
    numbers = [int(each) for each in tcp_mem.split() if each.isdigit()]
    return numbers[1] * PAGE * 3 // 4 if len(numbers) == 3 else None


def fullest(tenants: Mapping[str, Mapping[str, int]], bound: int) -> str | None:
    """The sandbox that uses the most, of the tenant that uses the most. `tenants` has the usage of each sandbox by tenant. None if sandboxes use too
    little, so that the machine's own programs are the cause. A small share is enough: queues show fewer bytes than the memory they occupy."""
    if sum(sum(sandboxes.values()) for sandboxes in tenants.values()) < bound // PART:
        return None
    having = {tenant: sandboxes for tenant, sandboxes in tenants.items() if max(sandboxes.values(), default=0) >= LEAST}
    if not having:
        return None
    worst = max(having.values(), key=lambda sandboxes: sum(sandboxes.values()))
    return max(worst, key=lambda name: worst[name])


def machine_use() -> int:
    return tcp_counts(read("/proc/net/sockstat")).bytes


def sandbox_use(pids: Iterable[int]) -> int:
    """Bytes used by the connections of a sandbox, found through one of its processes. Slow if there are many connections."""
    for pid in pids:
        if count := tcp_counts(read(f"/proc/{pid}/net/sockstat")).here:
            taken = sum(waiting(read(f"/proc/{pid}/net/{name}")) for name in ("tcp", "tcp6"))
            return taken + count * SOCKET_BYTES
    return 0
