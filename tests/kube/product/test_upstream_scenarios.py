"""What the upstream project's end-to-end suites ask for, on a real cluster whose controllers are ours."""

from __future__ import annotations

import pytest

from support.kube.stage import User
from support.upstream.claims import CLAIM_SCENARIOS
from support.upstream.parts import Scenario
from support.upstream.pools import POOL_SCENARIOS
from support.upstream.sandboxes import SANDBOX_SCENARIOS

pytestmark = [pytest.mark.kube, pytest.mark.timeout(300)]

SCENARIOS = {**SANDBOX_SCENARIOS, **CLAIM_SCENARIOS, **POOL_SCENARIOS}


@pytest.mark.parametrize("scenario", SCENARIOS.values(), ids=SCENARIOS)
async def test_a_scenario(scenario: Scenario, user: User) -> None:
    await scenario(user)
