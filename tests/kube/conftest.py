"""Tests of a real server run only when asked for; an ordinary run does not even mention them."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.kube.fixture import leave_out

HERE = Path(__file__).parent
ALL_OF_A_FOLDER = HERE / "product"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    leave_out(config, items)
    for item in items if config.getoption("loadgroup", False) else ():  # as a worker of `--dist loadgroup` is told
        if item.get_closest_marker("kube"):
            item.add_marker(pytest.mark.xdist_group(_servers(item.path)))


def _servers(test: Path) -> str:
    """Tests with the same servers go to the same worker: those of a folder, of all conformance suites, or of a file."""
    if ALL_OF_A_FOLDER in test.parents:
        return "product"
    if HERE in test.parents or test.parent.name == "deploy":
        return f"{test.parent.name}-{test.stem}"
    return "conformance"
