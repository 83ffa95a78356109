"""Open files of this process. The last of them are kept for what everything depends on: the API and the store. Whoever opens one for
a sandbox gives it back if it is among those.

Nothing is counted for that: the kernel always hands out the lowest free number, so a high number means that few are left.
"""

from __future__ import annotations

import os
import resource

LEAST, MOST = 64, 1024
EACH = 12
"""What one sandbox takes that nobody talks to: namespaces, channels, pipes, its log."""
BASIC = 48
"""What a server takes without any."""


def allowed() -> int:
    """How many this process may have open at once."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 1 << 30 if soft == resource.RLIM_INFINITY else soft


def kept(limit: int) -> int:
    """How many of so many are kept back: an eighth within bounds, and never more than a quarter."""
    return min(max(LEAST, min(MOST, limit // 8)), limit // 4)


def sandboxes_for(limit: int) -> int:
    """How many sandboxes so many open files are enough for."""
    return max(1, (limit - kept(limit) - BASIC) // EACH)


def scarce(file: int) -> bool:
    """Whether a file that was just opened is one of the last."""
    limit = allowed()
    return file >= limit - kept(limit)


def few_left() -> bool:
    """Whether the next one would be."""
    try:
        file = os.dup(2)
    except OSError:
        return True
    os.close(file)
    return scarce(file)


def told() -> str:
    limit = allowed()
    return (
        f"too many open files: the server may have {limit}, and the last {kept(limit)} are kept for its API. End some sandboxes or "
        "streams, or start it with a higher limit (`ulimit -n 65536`, LimitNOFILE= of its unit)"
    )


ENOUGH = 1 << 19
"""For some ten thousand sandboxes and their connections. More than that is not asked for: some systems allow a billion."""


def allow_open_files() -> int:
    """Raises the soft limit as far as the hard one lets it, and says what it is then. Sandboxes have limits of their own."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = ENOUGH if hard == resource.RLIM_INFINITY else min(hard, ENOUGH)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return soft
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return wanted


def connections_for(files: int, most: int = 10_000) -> int:
    """Of clients of one listener: never more than half of the open files."""
    return max(16, min(most, files // 2))


def requests_for(files: int) -> int:
    """That a router has under way for all tenants: each takes up to four open files, and all of them at most half. An administrator has
    as many again, and there must be connections left for both."""
    return max(8, min(4096, files // 8))


def router_connections_for(files: int) -> int:
    return connections_for(files, 2 * requests_for(files) + 1024)
