"""The product on a real cluster, as an operator runs it: two `sandpool controller` processes that race for the lease, with the
roles of an installation and nothing more, a real garbage collector, and a hollow node. All tests of this folder share them."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack

import pytest

from support.kube import server as kube_server
from support.kube.process import Controller, controller
from support.kube.stage import Stage, User, a_stage, a_user

pytest.register_assert_rewrite(
    "support.upstream.agent_sandbox_sdk",
    "support.upstream.claims",
    "support.upstream.parts",
    "support.upstream.pools",
    "support.upstream.sandboxes",
)


@pytest.fixture(scope="package")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    if lacking := kube_server.lacking():
        pytest.skip(lacking)
    with a_stage(tmp_path_factory.mktemp("stage"), "product") as stage:
        yield stage


@pytest.fixture(scope="package")
def racers(stage: Stage) -> Iterator[list[Controller]]:
    with ExitStack() as stack:
        made = [
            stack.enter_context(controller(stage.folder, stage.identity.kubeconfig, name=f"racer-{number}"))
            for number in range(2)
        ]
        for one in made:
            one.wait_ready()
        yield made
        for one in made:
            assert one.stop() == 0, one.tail()
            assert one.lines("reconcile failed") == []


@pytest.fixture
async def user(stage: Stage, racers: list[Controller], request: pytest.FixtureRequest) -> AsyncIterator[User]:
    name = re.sub("[^a-z0-9]+", "-", request.node.name.lower().removeprefix("test_"))[-50:].strip("-")
    async with a_user(stage, name) as user:
        yield user
