"""Writes are paced by what a real API server answers: here one that refuses (429) whatever exceeds two writes at once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest

from support.kube import server as kube_server
from support.kube.access import USER
from support.kube.process import Controller, controller
from support.kube.stage import Stage, a_stage, a_user

pytestmark = [pytest.mark.kube, pytest.mark.alone, pytest.mark.timeout(600)]

FEW_AT_ONCE = ("--enable-priority-and-fairness=false", "--max-mutating-requests-inflight=2")
MEMBERS, CLAIMS = 40, 120
PATIENCE = 240.0


@pytest.fixture
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    if lacking := kube_server.lacking():
        pytest.skip(lacking)
    with a_stage(tmp_path_factory.mktemp("stage"), "pacing", FEW_AT_ONCE) as stage:
        yield stage


def metric(process: Controller, name: str) -> float:
    """The sum over its labels."""
    _, text = process.page("/metrics")
    return sum(
        float(line.rpartition(" ")[2]) for line in text.splitlines() if line.startswith((f"{name} ", f"{name}{{"))
    )


async def test_a_server_that_refuses_is_asked_less_and_refill_goes_on(stage: Stage) -> None:
    with controller(stage.folder, stage.identity.kubeconfig) as process:
        process.wait_ready(leading=True)
        async with a_user(stage, "paced") as user:
            await user.template()
            await user.pool(MEMBERS)
            await user.filled(MEMBERS, seconds=PATIENCE)
            names = [f"c{number}" for number in range(CLAIMS)]
            for name in names:
                await user.claim(name)
            await user.served(*names, seconds=PATIENCE)
            await user.filled(MEMBERS, seconds=PATIENCE)
            codes = Counter(one.code for one in stage.audit.requests(USER) if one.writes and one.resource != "leases")
            done = sum(count for code, count in codes.items() if code < 400)
            refused = codes[429]
            assert refused, f"the server never was too busy: {codes}"
            assert refused < done / 4, f"{refused} refused, {done} done"
            assert metric(process, "sandpool_client_write_limit_lowered_total") > 0
            assert metric(process, "sandpool_client_write_limit") < 20
            assert metric(process, "sandpool_client_writes_throttled_total") <= refused
    assert '"level":"error"' not in process.log.read_text(), process.tail()
