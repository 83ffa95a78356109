"""Warns at the start when pools want more sandboxes than this process may have open files for."""

from __future__ import annotations

from sandpool.base.open_files import allowed, sandboxes_for
from sandpool.kube.api import Api
from sandpool.model.kinds import POOLS
from sandpool.telemetry.log import logger

log = logger(__name__)


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
