"""One cluster for all kubectl tests of a worker, a namespace of its own for each test."""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from support.kube.kubectl import Kubectl, kubectl_path
from support.product.cluster import Cluster, running_cluster

numbers = count(1)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = f"{Path(__file__).parent}{os.sep}"
    for item in items:
        if str(item.path).startswith(here):
            item.add_marker(pytest.mark.kubectl)


@pytest.fixture(scope="module")
def backend() -> str:
    """What most tests here are about is the server alone: objects stay as they were written."""
    return "none"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, backend: str) -> Iterator[Cluster]:
    kubectl_path()
    with running_cluster(tmp_path_factory.mktemp("cluster") / "data", "--backend", backend) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home")


@pytest.fixture
def kubectl(cluster: Cluster, home: Path) -> Kubectl:
    """kubectl in a fresh namespace."""
    admin = Kubectl(cluster.data_dir / "kubeconfig", home)
    name = f"test-{next(numbers)}"
    admin("create", "namespace", name)
    return Kubectl(admin.kubeconfig, home, name)
