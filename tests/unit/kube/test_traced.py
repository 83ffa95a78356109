"""What is written is part of the story and of the trace."""

from __future__ import annotations

import asyncio

import pytest

from sandpool.kube.api import Call
from sandpool.kube.errors import NotFound
from sandpool.kube.interceptors import Traced
from sandpool.model.kinds import CONFIG_MAPS
from sandpool.model.patches import merge_patch
from sandpool.telemetry.reconcile_history import noting
from support.api.flaky_api import FlakyApi
from support.api.span_recorder import SpanRecorder
from support.simulated.loop_cluster import a_cluster

BODY = {"metadata": {"name": "a"}, "data": {"x": "1"}}


async def test_every_call_is_noted_with_what_came_of_it() -> None:
    spans = SpanRecorder()
    async with a_cluster() as api:
        told = Traced(api, spans)
        with noting() as notes:
            made = await told.create(CONFIG_MAPS, BODY, "default")
            await told.patch(CONFIG_MAPS, "a", merge_patch({"data": {"x": "2"}}), "default")
            assert (await told.get(CONFIG_MAPS, "a", "default")).metadata.uid == made.metadata.uid
            await told.delete(CONFIG_MAPS, "a", "default")
            with pytest.raises(NotFound):
                await told.patch_status(CONFIG_MAPS, "a", merge_patch({}), "default")
        assert len((await told.list(CONFIG_MAPS, "default")).items) == 0
    assert notes == [
        "wrote create configmaps/a",
        "wrote patch configmaps/a",
        "asked get configmaps/a",
        "wrote delete configmaps/a",
        "tried patch status of configmaps/a: NotFound",
    ]
    assert [(span.name, span.failed) for span in spans.spans] == [
        ("create configmaps", ""),
        ("patch configmaps", ""),
        ("get configmaps", ""),
        ("delete configmaps", ""),
        ("patch status of configmaps", "NotFound"),
    ]
    assert spans.spans[0].attributes == {"namespace": "default", "object": "a"}


async def test_names_that_the_server_makes() -> None:
    async with a_cluster() as api:
        with noting() as notes:
            await Traced(api).create(CONFIG_MAPS, {"metadata": {"generateName": "a-"}}, "default")
    assert notes == ["wrote create configmaps/a-"]


async def test_a_write_that_was_cut_off_was_tried() -> None:
    hang = asyncio.Event()

    class Slow(FlakyApi):
        async def send(self, call: Call) -> object:
            await hang.wait()
            raise AssertionError

    async with a_cluster() as api:
        with noting() as notes:
            task = asyncio.create_task(Traced(Slow(api)).patch(CONFIG_MAPS, "a", merge_patch({}), "default"))
            await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
    assert notes == ["tried patch configmaps/a: CancelledError"]
