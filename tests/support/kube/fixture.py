"""The one real server of a test run: started before the first test if one needs it, stopped when the run ends."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from support.kube import server as kube_server

VARIABLE = "SANDPOOL_KUBECONFIG"


def leave_out(config: pytest.Config, items: list[pytest.Item]) -> None:
    """A real server takes seconds and memory, so a run must ask for it: by `-m kube` or by naming a cluster. Without
    that, tests marked `kube` are deselected, not skipped: an ordinary run does not mention them."""
    if "kube" in str(config.getoption("markexpr")) or VARIABLE in os.environ:
        return
    left_out = [item for item in items if item.get_closest_marker("kube")]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if not item.get_closest_marker("kube")]


_running: list[kube_server.KubeServer] = []


def hold_server(session: pytest.Session) -> Iterator[None]:
    """Body of a session fixture: a server for as long as the run lasts, if a selected test needs one. Folders share it: the first has it started."""
    needed = any(item.get_closest_marker("kube") for item in session.items)
    if _running or not needed or VARIABLE in os.environ or kube_server.lacking():
        yield
        return
    with kube_server.running() as server:
        _running.append(server)
        yield
        _running.clear()


def real_kubeconfig() -> Path:
    """Of the cluster that SANDPOOL_KUBECONFIG names, else of the server that this run holds; skips where neither is."""
    given = os.environ.get(VARIABLE)
    if given:
        return Path(given)
    if not _running:
        pytest.skip(kube_server.lacking())
    return _running[0].kubeconfig


def real_compaction() -> Callable[[], Awaitable[None]] | None:
    """How to make the real server's etcd forget; a cluster of somebody else's is not asked to."""
    if VARIABLE in os.environ:
        return None

    async def compact() -> None:
        await asyncio.to_thread(_running[0].compact)

    return compact
