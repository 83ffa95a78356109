"""Which runtimes pods may choose: the backend, what the operator allows beside it, and nothing else."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from unittest.mock import MagicMock

import pytest

from sandpool.app.local_node import BackendName, MachineOptions, RuntimeName, machine, runtimes_of, unheld_limits
from sandpool.app.local_options import LocalOptions
from sandpool.base.clock import LoopClock
from sandpool.controlplane.data_dir import DataDir
from sandpool.node.backend import Probe
from sandpool.node.runtimes.fake import FakeBackend
from sandpool.telemetry.metrics import Metrics


@pytest.mark.parametrize(
    ("backend", "allowed", "offered"),
    [
        ("namespaces", (), ["namespaces"]),
        ("gvisor", (), ["gvisor"]),
        ("process", (), ["process"]),
        ("gvisor", ("namespaces",), ["gvisor", "namespaces"]),
        ("namespaces", ("gvisor", "namespaces"), ["namespaces", "gvisor"]),
    ],
)
def test_only_what_the_operator_named(
    backend: BackendName, allowed: tuple[RuntimeName, ...], offered: list[str], tmp_path: Path
) -> None:
    options = MachineOptions(tmp_path, backend, runtimes=allowed)
    assert [runtime.name for runtime in runtimes_of(options)] == offered


@pytest.mark.parametrize(
    ("enforced", "bandwidth", "unheld"),
    [
        ({"cpu", "memory", "pids", "storage", "network"}, False, ()),
        ({"cpu", "memory", "pids", "storage"}, True, ("io",)),
        ({"pids", "storage", "io"}, True, ("cpu", "memory")),
        (set(), False, ("cpu", "memory", "pids", "storage")),
    ],
)
def test_limits_that_nothing_holds(enforced: set[str], bandwidth: bool, unheld: tuple[str, ...]) -> None:
    assert unheld_limits(Probe(True, enforced=frozenset(enforced)), bandwidth=bandwidth) == unheld


@pytest.mark.parametrize("name", ["fake", "hollow"])
async def test_the_fake_runtime_has_two_names(name: BackendName, tmp_path: Path) -> None:
    assert LocalOptions(DataDir(tmp_path), backend=name).backend == "hollow", "as running clusters publish it"
    options = MachineOptions(tmp_path, name)
    async with machine(options, MagicMock(), LoopClock(datetime(2026, 1, 1, tzinfo=UTC)), Metrics()) as found:
        assert isinstance(found.backend, FakeBackend)
        assert not found.real
