"""The open file limit of this process. The last file descriptors are reserved for the API and the store: code that opens one for a
sandbox must close it again if it is among those.

No counter is needed: the kernel always hands out the lowest free number, so a high number means that few are left.
"""

from __future__ import annotations

import os
import resource

LEAST, MOST = 64, 1024
EACH = 12
"""Descriptors of one idle sandbox: namespaces, channels, pipes, its log."""
BASIC = 48
"""Descriptors of a server without sandboxes."""


def allowed() -> int:
    """How many files this process may have open at once."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 1 << 30 if soft == resource.RLIM_INFINITY else soft


def kept(limit: int) -> int:
    """How many descriptors of `limit` are reserved: an eighth within bounds, and never more than a quarter."""
    return min(max(LEAST, min(MOST, limit // 8)), limit // 4)


def sandboxes_for(limit: int) -> int:
    """How many sandboxes this limit is enough for."""
    return max(1, (limit - kept(limit) - BASIC) // EACH)


def scarce(file: int) -> bool:
    """Whether a file that was just opened is one of the reserved ones."""
    limit = allowed()
    return file >= limit - kept(limit)


def few_left() -> bool:
    """Whether the next file would be one of the reserved ones."""
    try:
        file = os.dup(2)
    except OSError:
        return True
    os.close(file)
    return scarce(file)


def limit_message() -> str:
    limit = allowed()
    return (
        f"too many open files: the server may have {limit}, and the last {kept(limit)} are kept for its API. End some sandboxes or "
        "streams, or start it with a higher limit (`ulimit -n 65536`, LimitNOFILE= of its unit)"
    )


ENOUGH = 1 << 19
"""Enough for some ten thousand sandboxes and their connections. A higher limit is not requested: some systems allow a billion."""


def allow_open_files() -> int:
    """Raises the soft limit towards the hard one; returns the new limit. Sandboxes have limits of their own."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = ENOUGH if hard == resource.RLIM_INFINITY else min(hard, ENOUGH)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return soft
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return wanted


def connections_for(files: int, most: int = 10_000) -> int:
    """Connections that one listener may have: never more than half of the open files."""
    return max(16, min(most, files // 2))


def requests_for(files: int) -> int:
    """Requests that a router may have in flight for all tenants. Each takes up to four open files, and together they may take half of them. The
    administrator may have as many again."""
    return max(8, min(4096, files // 8))


def router_connections_for(files: int) -> int:
    return connections_for(files, 2 * requests_for(files) + 1024)
