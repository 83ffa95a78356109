"""How many files this process may have open: each sandbox takes about a dozen, and what a login gives is often 1024."""

from __future__ import annotations

import resource

from sandpool.kube.api import Api
from sandpool.loop.descriptors import allowed, sandboxes_for
from sandpool.model.kinds import POOLS
from sandpool.telemetry.log import logger

log = logger(__name__)

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


async def warn_of_few_files(api: Api, backend: str) -> None:
    """At the start, if pools want more sandboxes than this process can hold."""
    if backend in ("hollow", "none"):
        return
    wanted = sum(pool.spec.replicas for pool in (await api.list(POOLS)).items)
    files = allowed()
    if wanted > sandboxes_for(files):
        log.warning(
            "the limit of open files is too low for the pools; start with a higher one (`ulimit -n 65536`, LimitNOFILE= of the unit)",
            limit=files,
            sandboxes=sandboxes_for(files),
            pools=wanted,
        )
