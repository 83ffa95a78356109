"""What sandboxes do, as whoever runs the tests: root, usually. All share one runtime, as all pods of a machine do."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from support.node.sandbox_scenarios import SCENARIOS
from support.node.sandboxes import Bench, opened

pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.root if os.geteuid() == 0 else pytest.mark.ordinary_user,
]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def runtime(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Bench]:
    folder = tmp_path_factory.mktemp("namespaces")
    async with opened(folder, f"test{os.getpid()}") as bench:
        probe = await bench.runtime.probe()
        if not probe.available:
            pytest.skip(f"{probe.reason}: {probe.message}")
        await bench.runtime.runtime_host.living_server()
        yield bench


@pytest.fixture
def bench(runtime: Bench, tmp_path: Path) -> Bench:
    return Bench(runtime.runtime, tmp_path)


@pytest.mark.parametrize("name", SCENARIOS)
async def test_of_a_sandbox(name: str, bench: Bench) -> None:
    await SCENARIOS[name](bench)
