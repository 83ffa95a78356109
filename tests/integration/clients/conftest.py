"""Scenarios that several suites run are tests too: their failures show the values."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from support.product.cluster import Cluster

pytest.register_assert_rewrite(
    "support.upstream.agent_sandbox_sdk",
    "support.upstream.claims",
    "support.upstream.parts",
    "support.upstream.pools",
    "support.upstream.sandboxes",
)


@pytest.fixture
def client(cluster: Cluster) -> Iterator[object]:
    """The Python client of Kubernetes, on the cluster of the test's own module."""
    kubernetes = pytest.importorskip("kubernetes")
    configuration = kubernetes.client.Configuration()
    kubernetes.config.load_kube_config(str(cluster.data_dir / "kubeconfig"), client_configuration=configuration)
    with kubernetes.client.ApiClient(configuration) as client:
        yield client
        client.rest_client.pool_manager.clear()
