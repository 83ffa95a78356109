"""Tests of a real node run only when asked for, by `-m node`; an ordinary run does not even mention them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from support.kube import real_node
from support.kube import server as kube_server
from support.kube.real_node import Cluster


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if "node" in str(config.getoption("markexpr")):
        return
    left_out = [item for item in items if item.get_closest_marker("node")]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if not item.get_closest_marker("node")]


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    if lacking := real_node.lacking() or kube_server.lacking():
        pytest.skip(lacking)
    with kube_server.running(accounts=True) as server, real_node.real_node(server) as node:
        yield Cluster(server, node, tmp_path_factory.mktemp("cluster"))
