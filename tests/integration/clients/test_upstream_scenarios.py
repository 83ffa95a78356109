"""What the upstream project's end-to-end suites ask for, against a real `sandpool up`. docs/reference/compatibility.md lists it."""

from __future__ import annotations

import os
import random
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from sandpool.base.clock import SystemClock
from sandpool.kube.http import connect
from sandpool.kube.kubeconfig import load_kubeconfig
from sandpool.model.kinds import NAMESPACES, PERSISTENT_VOLUME_CLAIMS
from support.kube.stage import User
from support.product.cluster import running_cluster
from support.upstream.claims import CLAIM_SCENARIOS
from support.upstream.parts import Scenario, body_of
from support.upstream.pools import POOL_SCENARIOS, a_class_that_nobody_made, what_the_node_has
from support.upstream.sandboxes import SANDBOX_SCENARIOS

SCENARIOS = {**SANDBOX_SCENARIOS, **CLAIM_SCENARIOS, **POOL_SCENARIOS}
DOCUMENT = Path(__file__).parents[3] / "docs/reference/compatibility.md"


@pytest.fixture(scope="module")
def kubeconfig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("cluster") / "data"
    with running_cluster(folder, "--backend", "hollow", "--no-pool") as cluster:
        yield cluster.data_dir / "kubeconfig"


@asynccontextmanager
async def a_user(kubeconfig: Path, name: str) -> AsyncIterator[User]:
    config = load_kubeconfig([kubeconfig])
    async with connect(config, clock=SystemClock(), draw=random.random, env=os.environ) as api:
        await api.create(NAMESPACES, {"metadata": {"name": name}})
        yield User(api, name)
        await api.delete(NAMESPACES, name)


@pytest.fixture
async def user(kubeconfig: Path, request: pytest.FixtureRequest) -> AsyncIterator[User]:
    """In a namespace of its own: the tests share the cluster."""
    async with a_user(kubeconfig, re.sub("[^a-z0-9]+", "-", request.node.name.lower())[-50:].strip("-")) as found:
        yield found


@pytest.mark.parametrize("scenario", SCENARIOS.values(), ids=SCENARIOS)
async def test_a_scenario(scenario: Scenario, user: User) -> None:
    await scenario(user)


async def test_a_claim_for_storage_gets_the_default_class_unless_it_says_something_else(user: User) -> None:
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    for name, more in {"unsaid": {}, "none": {"storageClassName": ""}, "own": {"storageClassName": "fast"}}.items():
        await user.create(PERSISTENT_VOLUME_CLAIMS, name, **spec, **more)
    found = {
        name: (await body_of(user, PERSISTENT_VOLUME_CLAIMS, name))["spec"]["storageClassName"]
        for name in ("unsaid", "none", "own")
    }
    assert found == {"unsaid": "standard", "none": "", "own": "fast"}


@pytest.mark.parametrize("backend", ["process", "namespaces", "none"])
async def test_every_backend_refuses_a_class_that_nobody_made(backend: str, tmp_path: Path) -> None:
    with running_cluster(tmp_path / "data", "--backend", backend, "--no-pool") as cluster:
        async with a_user(cluster.data_dir / "kubeconfig", "refused") as user:
            await a_class_that_nobody_made(user)
            if backend != "none":
                await what_the_node_has(user)


def test_the_document_lists_every_scenario() -> None:
    listed = re.findall(r"^\| `?([^|`]+?)`? \| ", DOCUMENT.read_text(), re.MULTILINE)
    assert set(SCENARIOS) <= set(listed)
