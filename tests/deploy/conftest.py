"""Tests that need helm or a real server run only when asked for; an ordinary run does not even mention them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.kube import server as kube_server
from support.kube.fixture import leave_out
from support.kube.kubectl import Kubectl
from support.kube.kubectl_anywhere import Anywhere


@pytest.fixture(scope="module")
def server() -> Iterator[kube_server.KubeServer]:
    """A real API server of this module's own: what is installed here is in nobody's way."""
    if lacking := kube_server.lacking():
        pytest.skip(lacking)
    with kube_server.running(controllers=False) as server:
        yield server


@pytest.fixture
def kubectl(server: kube_server.KubeServer, tmp_path: Path) -> Kubectl:
    return Anywhere(server.kubeconfig, tmp_path)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    leave_out(config, items)
