"""A full disk: what makes room is stored, what needs room is not."""

from __future__ import annotations

from typing import Any

import pytest

from sandpool.controlplane.objects.options import WriteOptions
from sandpool.kube.errors import InsufficientStorage
from sandpool.model import kinds
from sandpool.model.patches import merge_patch
from support.api.local_objects import Bench, config_map, pod

FULL = "disk full: no room"


def text(size: int) -> dict[str, Any]:
    return {"data": {"text": "x" * size}}


async def test_nothing_new(b: Bench) -> None:
    b.objects.room.why = FULL
    with pytest.raises(InsufficientStorage, match=r"disk full: no room; nothing new is stored") as refused:
        await b.create(kinds.CONFIG_MAPS, config_map("m"))
    assert refused.value.body()["details"]["causes"][0]["reason"] == "DiskFull"
    assert refused.value.body()["code"] == 507
    body = {**config_map("m")}
    await b.objects.create(kinds.CONFIG_MAPS, "default", body, WriteOptions(dry_run=True))
    b.objects.room.why = ""
    await b.create(kinds.CONFIG_MAPS, config_map("m"))


async def test_changes_that_do_not_grow_and_deletes(b: Bench) -> None:
    await b.create(kinds.CONFIG_MAPS, {**config_map("m", finalizers=["example.com/f"]), **text(1000)})
    b.objects.room.why = FULL
    with pytest.raises(InsufficientStorage, match="nothing that grows"):
        await b.objects.patch(kinds.CONFIG_MAPS, "default", "m", merge_patch(text(2000)))
    await b.objects.patch(kinds.CONFIG_MAPS, "default", "m", merge_patch(text(900)))
    await b.objects.delete(kinds.CONFIG_MAPS, "default", "m")
    await b.objects.patch(kinds.CONFIG_MAPS, "default", "m", merge_patch({"metadata": {"finalizers": None}}))
    assert list(b.objects.list(kinds.CONFIG_MAPS, "default").records) == []


async def test_status_may_say_more(b: Bench) -> None:
    await b.create(kinds.PODS, pod("p"))
    b.objects.room.why = FULL
    more = merge_patch({"status": {"message": "x" * 5000}})
    await b.objects.patch(kinds.PODS, "default", "p", more, subresource="status")
    much = merge_patch({"status": {"message": "x" * 50_000}})
    with pytest.raises(InsufficientStorage):
        await b.objects.patch(kinds.PODS, "default", "p", much, subresource="status")
