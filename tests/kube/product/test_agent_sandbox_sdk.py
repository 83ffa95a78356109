"""The `k8s-agent-sandbox` package, unmodified, on a real cluster whose controllers are ours."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from support.kube.stage import Stage, User
from support.upstream.agent_sandbox_sdk import FLAVOURS, SCENARIOS, Sdk

pytestmark = [pytest.mark.kube, pytest.mark.timeout(300)]


@pytest.mark.parametrize("flavour", FLAVOURS)
@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
async def test_a_program(
    scenario: Callable[[Sdk, User], Awaitable[None]], flavour: str, stage: Stage, user: User
) -> None:
    await scenario(Sdk(flavour, stage.server.kubeconfig, user.namespace), user)
