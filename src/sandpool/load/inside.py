"""Into sandboxes, as their users get there: the router, on connections that all work of a run shares and keeps."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

from sandpool.base.clock import Clock
from sandpool.load.errors import LoadError
from sandpool.load.files import RouterFiles
from sandpool.load.first_output import RouterCommand
from sandpool.load.work import Work
from sandpool.sdk._async.connection import AsyncConnection
from sandpool.sdk.config import Config


@asynccontextmanager
async def through_router(config: Config, work: Work, command: str, size: int, clock: Clock) -> AsyncIterator[Work]:
    """The work with a first command, with files of `size` bytes, or with both; empty and 0 stand for none."""
    if not command and not size:
        yield work
        return
    if not config.router:
        raise LoadError(
            f"{'--exec' if command else '--files'} goes through the router and no router is known: the backend hollow has none "
            "(nothing runs in its pods); on Kubernetes name it with --router"
        )
    async with AsyncConnection(config) as connection:
        yield replace(
            work,
            command=RouterCommand(connection, command, clock) if command else None,
            files=RouterFiles(connection, size) if size else None,
        )
