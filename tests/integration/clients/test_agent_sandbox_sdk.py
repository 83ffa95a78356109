"""The `k8s-agent-sandbox` package, unmodified, against a real `sandpool up`."""

from __future__ import annotations

import os
import random
import re
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from sandpool.base.clock import SystemClock
from sandpool.kube.http import connect
from sandpool.kube.kubeconfig import load_kubeconfig
from sandpool.model.kinds import CLAIMS, NAMESPACES
from support.kube.stage import User
from support.product.cluster import running_cluster
from support.upstream.agent_sandbox_sdk import FLAVOURS, SCENARIOS, Sdk, warm

PROGRAM = """
import sys
from k8s_agent_sandbox import SandboxClient

client = SandboxClient(cleanup=True)
box = client.create_sandbox("python", namespace=sys.argv[1])
print(box.claim_name, box.sandbox_id, box.get_pod_ip(), *box.status()[:1], *client.list_all_sandboxes(sys.argv[1]))
"""


@pytest.fixture(scope="module")
def kubeconfig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with running_cluster(tmp_path_factory.mktemp("cluster") / "data") as cluster:
        yield cluster.data_dir / "kubeconfig"


@pytest.fixture
async def user(kubeconfig: Path, request: pytest.FixtureRequest) -> AsyncIterator[User]:
    """In a namespace of its own: the tests share the cluster."""
    name = re.sub("[^a-z0-9]+", "-", request.node.name.lower())[-50:].strip("-")
    config = load_kubeconfig([kubeconfig])
    async with connect(config, clock=SystemClock(), draw=random.random, env=os.environ) as api:
        await api.create(NAMESPACES, {"metadata": {"name": name}})
        yield User(api, name)
        await api.delete(NAMESPACES, name)


@pytest.mark.parametrize("flavour", FLAVOURS)
@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
async def test_a_program(
    scenario: Callable[[Sdk, User], Awaitable[None]], flavour: str, user: User, kubeconfig: Path
) -> None:
    await scenario(Sdk(flavour, kubeconfig, user.namespace), user)


async def test_a_program_that_knows_nothing_but_a_kubeconfig(user: User, kubeconfig: Path) -> None:
    """As its users start it: no client is handed in, and what it made is given back when it ends."""
    members = await warm(user)
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, user.namespace],
        env=os.environ | {"KUBECONFIG": str(kubeconfig)},
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    claim, box, address, status, *claims = done.stdout.split()
    assert box in members
    assert (status, claims) == ("SandboxReady", [claim])
    assert re.fullmatch(r"[0-9.]+", address)
    assert await user.all(CLAIMS) == []
