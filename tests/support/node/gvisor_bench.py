"""Sandboxes of the gvisor runtime, for tests that were written for those of namespaces."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import pytest

from sandpool.node.backend import Probe
from sandpool.node.runtimes.gvisor.runtime import GvisorRuntime
from support.node import runsc
from support.node.sandboxes import Bench

_found: list[Probe] = []


async def skip_unless_it_works(folder: Path) -> None:
    """Found out once."""
    if not _found:
        _found.append(
            await GvisorRuntime(folder / "probe", installation=f"bench{os.getpid()}", runsc=runsc.path()).probe()
        )
    if not _found[0].available:
        pytest.skip(f"{_found[0].reason}: {_found[0].message}")


@asynccontextmanager
async def opened(folder: Path, installation: str, program: Path | None = None) -> AsyncIterator[Bench]:
    folder.mkdir(exist_ok=True)
    runtime = GvisorRuntime(folder / "runtime", installation=installation, runsc=program or runsc.path())
    await runtime.open()
    try:
        yield Bench(cast(Any, runtime), folder)
    finally:
        await runtime.close()
