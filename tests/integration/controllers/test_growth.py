"""The work of one claim does not depend on how large its pool is: counted, for pools whose members stand on 50 nodes."""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from pathlib import Path
from types import FrameType

import pytest

import sandpool
from sandpool.app.controllers import ControllerOptions
from sandpool.controllers.claim.options import Options as ClaimOptions
from support.api.full_pool import fill
from support.clocks.virtual_loop import run_virtually
from support.simulated.control_plane import ControlPlane, a_control_plane

CLAIMS = 20
SETTLED = 60.0
NO_AUDIT = ControllerOptions(claim=ClaimOptions(audit_every=1e9))  # the audit looks at everything, now and then
SOURCE = Path(sandpool.__file__).parent
WATCHED = tuple(str(SOURCE / part) for part in ("controllers", "loop/cache.py", "loop/index.py", "loop/writes.py"))


class Calls:
    """Counts the calls of functions in the controllers and in what they read from."""

    def __init__(self) -> None:
        self.made: Counter[str] = Counter()

    def _seen(self, frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(WATCHED):
            self.made[f"{Path(code.co_filename).name}:{code.co_qualname}"] += 1

    def __enter__(self) -> Calls:
        sys.setprofile(self._seen)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)


def work_of_claims(members: int) -> Counter[str]:
    calls = Calls()

    async def work(plane: ControlPlane) -> None:
        await asyncio.sleep(SETTLED)
        plane.clear()
        with calls:
            for number in range(CLAIMS):
                await plane.claim(f"c{number}")
                await asyncio.sleep(1.0)
            await asyncio.sleep(SETTLED)
        await plane.served([f"c{number}" for number in range(CLAIMS)])
        assert plane.reconciles("claim") == CLAIMS
        assert plane.distant.failures == []

    async def main() -> None:
        async with a_control_plane(options=NO_AUDIT, before=lambda api: fill(api, members), node=False) as plane:
            await work(plane)

    run_virtually(main())
    return calls.made


@pytest.mark.parametrize("members", [1_000, pytest.param(10_000, marks=[pytest.mark.long, pytest.mark.timeout(600)])])
def test_a_claim_costs_the_same_in_a_large_pool(members: int) -> None:
    small, large = work_of_claims(100), work_of_claims(members)
    assert sum(small.values()) > 1_000  # the counter does count
    differences = {name: (small[name], large[name]) for name in small | large if small[name] != large[name]}
    assert differences == {}
