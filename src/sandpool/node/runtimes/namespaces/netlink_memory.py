"""Measures the unread replies in the netlink sockets of a sandbox. The kernel charges them to no control group and limits them only per socket:
a sandbox of 64 MiB held 320 MiB in 40 sockets.
"""

from __future__ import annotations

from collections.abc import Iterable

from sandpool.node.runtimes.namespaces.forked.cgroups import read

MOST_REPLIES = 32 << 20  # bytes of one sandbox; ordinary programs read replies at once
_RECEIVED = 4  # the column of received bytes


def waiting_replies(text: str) -> int:
    """Bytes in all sockets listed in the text of /proc/net/netlink."""
    rows = (line.split(maxsplit=_RECEIVED + 1) for line in text.splitlines()[1:])
    return sum(int(row[_RECEIVED]) for row in rows if len(row) > _RECEIVED and row[_RECEIVED].isdigit())


def replies_of(pids: Iterable[int]) -> int:
    """Bytes of a sandbox's sockets, found through one of its processes."""
    return next((waiting_replies(text) for pid in pids if (text := read(f"/proc/{pid}/net/netlink"))), 0)
