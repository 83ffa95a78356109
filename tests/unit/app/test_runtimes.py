"""Which runtimes pods may choose: the backend, what the operator allows beside it, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from sandpool.app.local_node import BackendName, MachineOptions, RuntimeName, runtimes_of, unheld_limits
from sandpool.node.backend import Probe


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
