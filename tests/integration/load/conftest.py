"""One hollow cluster, in a process of its own, that all tests here drive and leave as they found it."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from support.product.cluster import Cluster, running_cluster


@pytest.fixture(scope="package")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with running_cluster(tmp_path_factory.mktemp("load") / "data", "--backend", "hollow") as cluster:
        yield cluster


@pytest.fixture
def untouched(cluster: Cluster) -> Iterator[None]:
    """The objects of the cluster are the same before and after: nothing of a run stays."""
    before = _at_rest(cluster)
    yield
    assert objects(cluster) == before


def _at_rest(cluster: Cluster) -> dict[str, list[str]]:
    """What an earlier test gave back may still be going: its sandboxes before their pods."""
    for _ in range(100):
        found = objects(cluster)
        pods, sandboxes = (
            {one.split()[0] for one in found[path]} for path in found if path.endswith(("/pods", "/sandboxes"))
        )
        if pods <= sandboxes:
            break
        time.sleep(0.1)
    return found


def objects(cluster: Cluster) -> dict[str, list[str]]:
    """Names and uids of everything that a run could leave behind."""
    core, extensions, agents = "/api/v1", "/apis/extensions.agents.x-k8s.io/v1beta1", "/apis/agents.x-k8s.io/v1beta1"
    paths = [f"{core}/namespaces", f"{core}/pods", f"{agents}/sandboxes"]
    paths += [f"{extensions}/{plural}" for plural in ("sandboxclaims", "sandboxwarmpools", "sandboxtemplates")]
    found = {}
    for path in paths:
        items = cluster.request("GET", path)["items"]
        found[path] = sorted(f"{item['metadata']['name']} {item['metadata']['uid']}" for item in items)
    return found
