"""A status that may not be written is told where it can be: by an Event on the object, by a metric, and in its story."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from sandpool.app.controllers import ControllerOptions, Observability
from sandpool.controllers.refused_status import LASTS
from sandpool.kube.api import Api
from sandpool.kube.errors import Forbidden, Unreachable
from sandpool.model.kinds import CLAIMS, POOLS, SANDBOXES
from sandpool.model.metadata import Key
from sandpool.model.resource import Resource
from support.api.faulty_api import FaultyApi
from support.api.heard_events import HeardEvents
from support.clocks.virtual_loop import run_virtually
from support.simulated.control_plane import ControlPlane, a_control_plane

DENIED = Forbidden('sandboxclaims is forbidden: User "x" cannot patch resource "sandboxclaims/status"')


def refused(plane: ControlPlane, resource: Resource[Any]) -> float | None:
    label = {"resource": resource.group_resource}
    return plane.observability.metrics.registry.get_sample_value("sandpool_status_refused", label)


class Line:
    """Between the controllers and the server."""

    faulty: FaultyApi

    def __call__(self, api: Api) -> FaultyApi:
        self.faulty = FaultyApi(api)
        return self.faulty


async def name_of(plane: ControlPlane, resource: Resource[Any]) -> tuple[str, Key]:
    """Who looks after the one object of the kind that there is, and its key."""
    (found,) = (await plane.user.list(resource, "default")).items
    return {CLAIMS: "claim", POOLS: "pool", SANDBOXES: "sandbox"}[resource], found.metadata.key


@pytest.mark.parametrize("resource", [CLAIMS, POOLS, SANDBOXES], ids=lambda resource: resource.plural)
def test_every_kind_tells_of_it_until_it_is_allowed_again(resource: Resource[Any]) -> None:
    async def main() -> None:
        events, line = HeardEvents(), Line()
        async with a_control_plane(observability=Observability(events=events), line=line) as plane:
            assert refused(plane, resource) == 0
            fault = line.faulty.on("patch_status", resource.plural, times=10_000).refuse(DENIED)
            await plane.template()
            await plane.pool(1)
            await asyncio.sleep(30)
            if resource is CLAIMS:
                await plane.claim("mine")
            await asyncio.sleep(120)
            assert fault.met > 3
            assert refused(plane, resource) == 1
            (told,) = events.of("StatusRefused")
            assert told.startswith("The status is not up to date: ")
            assert 'cannot patch resource "sandboxclaims/status"' in told
            assert f"`patch` on {resource.plural}/status ({resource.group})" in told
            story = plane.observability.history.of(await name_of(plane, resource))
            assert any("Forbidden" in entry.outcome for entry in story)
            fault.times = 0
            await plane.filled(1)
            await asyncio.sleep(LASTS + 60)
            assert refused(plane, resource) == 0
            assert len(events.of("StatusRefused")) == 1, "one refusal that lasts is one piece of news"

    run_virtually(main())


def test_claims_tell_nothing_where_that_is_off() -> None:
    async def main() -> None:
        events, line = HeardEvents(), Line()
        options = ControllerOptions(claim_events=False)
        async with a_control_plane(options=options, observability=Observability(events=events), line=line) as plane:
            line.faulty.on("patch_status", "sandboxclaims", times=10_000).refuse(DENIED)
            await plane.template()
            await plane.pool(1)
            await plane.filled(1)
            await plane.claim("mine")
            await asyncio.sleep(30)
            assert refused(plane, CLAIMS) == 1, "the metric tells it all the same"
            assert events.of("StatusRefused") == []

    run_virtually(main())


def test_a_server_that_is_away_is_one_line_with_a_count(caplog: pytest.LogCaptureFixture) -> None:
    """Not a traceback for each of fifty claims, and each try."""

    async def main() -> None:
        line = Line()
        async with a_control_plane(line=line) as plane:
            await plane.template()
            await plane.pool(50)
            await plane.filled(50)
            caplog.clear()
            faults = [
                line.faulty.on(verb, times=100_000).refuse(Unreachable("gone away"))
                for verb in ("patch", "patch_status", "create", "delete", "get")
            ]
            for number in range(50):
                await plane.claim(f"c{number}")
            await asyncio.sleep(9)
            failures = sum(fault.met for fault in faults)
            assert failures > 300
            lines = [record for record in caplog.records if record.levelno >= logging.INFO]
            assert [line.getMessage() for line in lines] == ["calls to the API server fail"]
            assert not any(line.exc_info for line in lines)
            for fault in faults:
                fault.times = 0
            await plane.served([f"c{number}" for number in range(50)])

    with caplog.at_level(logging.INFO, "sandpool"):
        run_virtually(main())
