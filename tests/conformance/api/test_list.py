"""Reads: consistent, in order, selected, in pages of one snapshot."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from conformance.bodies import core, metadata, pod, sandbox
from sandpool.kube.api import Api, Page
from sandpool.kube.errors import BadRequest, Gone, NotFound
from sandpool.model.kinds import CONFIG_MAPS, PODS, SANDBOXES
from sandpool.model.patches import merge_patch
from support.api.implementations import Implementation


def names(page: Page[Any]) -> list[str]:
    return [item.metadata.name for item in page.items]


async def test_reads_see_every_acknowledged_write(api: Api, ns: str) -> None:
    for i in range(20):
        made = await api.create(SANDBOXES, sandbox(f"s{i:02}"), ns)
        assert await api.get(SANDBOXES, f"s{i:02}", ns) == made
        page = await api.list(SANDBOXES, ns)
        assert page.items[-1] == made
        assert page.revision >= made.metadata.revision
    await api.delete(SANDBOXES, "s00", ns)
    assert names(await api.list(SANDBOXES, ns)) == [f"s{i:02}" for i in range(1, 20)]


async def test_get_of_what_is_absent(api: Api, ns: str) -> None:
    with pytest.raises(NotFound) as caught:
        await api.get(SANDBOXES, "absent", ns)
    assert caught.value.message == 'sandboxes.agents.x-k8s.io "absent" not found'
    assert caught.value.details == {"name": "absent", "group": "agents.x-k8s.io", "kind": "sandboxes"}
    with pytest.raises(NotFound) as caught:
        await api.get(CONFIG_MAPS, "absent", ns)
    assert (caught.value.message, caught.value.details) == (
        'configmaps "absent" not found',
        {"name": "absent", "kind": "configmaps"},
    )


async def test_lists_are_ordered_and_whole(api: Api, ns: str) -> None:
    made = [await api.create(SANDBOXES, sandbox(name), ns) for name in ("b", "a-b", "a", "a.b", "b1")]
    page = await api.list(SANDBOXES, ns)
    assert names(page) == ["a", "a-b", "a.b", "b", "b1"]
    assert sorted(page.items, key=lambda item: item.metadata.revision) == made
    assert (page.after, page.remaining) == ("", None)


async def test_lists_know_their_namespace_and_kind(api: Api, ns: str) -> None:
    await api.create(SANDBOXES, sandbox("s"), ns)
    assert (await api.list(CONFIG_MAPS, ns, fields="metadata.name=s")).items == ()
    assert (await api.list(SANDBOXES, f"{ns}-other")).items == ()
    everywhere = await api.list(SANDBOXES)
    assert [item.metadata.name for item in everywhere.items if item.metadata.namespace == ns] == ["s"]


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        ("", ["a", "b", "c"]),
        ("app=x", ["a", "b"]),
        ("app==x", ["a", "b"]),
        ("app!=x", ["c"]),
        ("app", ["a", "b"]),
        ("!app", ["c"]),
        ("tier in (1,2)", ["a"]),
        ("tier notin (1)", ["b", "c"]),
        ("app=x,tier", ["a"]),
        ("tier>0", ["a"]),
        ("app=nobody", []),
    ],
)
async def test_label_selectors(api: Api, ns: str, labels: str, expected: list[str]) -> None:
    for name, its in (("a", {"app": "x", "tier": "1"}), ("b", {"app": "x"}), ("c", {})):
        await api.create(SANDBOXES, sandbox(metadata=metadata(name, labels=its)), ns)
    assert names(await api.list(SANDBOXES, ns, labels=labels)) == expected


async def test_field_selectors(api: Api, ns: str) -> None:
    for name in ("a", "b"):
        await api.create(PODS, pod(name), ns)
        await api.create(SANDBOXES, sandbox(name), ns)
    await api.patch_status(PODS, "b", merge_patch({"status": {"phase": "Running"}}), ns)
    assert names(await api.list(SANDBOXES, ns, fields="metadata.name=a")) == ["a"]
    assert names(await api.list(SANDBOXES, ns, fields="metadata.name!=a")) == ["b"]
    assert names(await api.list(SANDBOXES, ns, fields=f"metadata.namespace={ns},metadata.name=b")) == ["b"]
    assert names(await api.list(PODS, ns, fields="status.phase=Running")) == ["b"]
    assert names(await api.list(PODS, ns, fields="spec.nodeName=")) == ["a", "b"]
    for fields in ("spec.operatingMode=Running", "banana"):
        with pytest.raises(BadRequest):
            await api.list(SANDBOXES, ns, fields=fields)
    with pytest.raises(BadRequest):
        await api.list(SANDBOXES, ns, labels="a b")


async def test_pages_are_one_snapshot(api: Api, ns: str) -> None:
    for i in range(10):
        await api.create(SANDBOXES, sandbox(f"s{i}"), ns)
    page = await api.list(SANDBOXES, ns, limit=4)
    assert (names(page), page.remaining) == (["s0", "s1", "s2", "s3"], 6)
    revision = page.revision
    await asyncio.gather(
        api.create(SANDBOXES, sandbox("s35"), ns),
        api.create(SANDBOXES, sandbox("s99"), ns),
        api.delete(SANDBOXES, "s5", ns),
        api.patch(SANDBOXES, "s6", merge_patch({"metadata": {"labels": {"late": "yes"}}}), ns),
    )
    seen = list(page.items)
    while page.after:
        page = await api.list(SANDBOXES, ns, limit=4, after=page.after)
        assert page.revision == revision
        seen += page.items
    assert [item.metadata.name for item in seen] == [f"s{i}" for i in range(10)]
    assert all(item.metadata.labels == {} for item in seen)
    assert page.remaining is None
    assert names(await api.list(SANDBOXES, ns)) == ["s0", "s1", "s2", "s3", "s35", "s4", "s6", "s7", "s8", "s9", "s99"]


async def test_pages_of_a_selection(api: Api, ns: str) -> None:
    for i in range(9):
        await api.create(CONFIG_MAPS, core("ConfigMap", metadata=metadata(f"c{i}", labels={"odd": str(i % 2)})), ns)
    page = await api.list(CONFIG_MAPS, ns, labels="odd=1", limit=2)
    assert (names(page), page.remaining) == (["c1", "c3"], None)
    page = await api.list(CONFIG_MAPS, ns, labels="odd=1", limit=2, after=page.after)
    assert names(page) == ["c5", "c7"]
    while page.after:  # whether the end is known yet is the server's business
        page = await api.list(CONFIG_MAPS, ns, labels="odd=1", limit=2, after=page.after)
        assert names(page) == []


async def test_a_limit_that_fits_has_no_next_page(api: Api, ns: str) -> None:
    for i in range(3):
        await api.create(SANDBOXES, sandbox(f"s{i}"), ns)
    page = await api.list(SANDBOXES, ns, limit=3)
    assert (len(page.items), page.after, page.remaining) == (3, "", None)


async def test_a_token_that_is_none(api: Api, ns: str) -> None:
    with pytest.raises(BadRequest):
        await api.list(SANDBOXES, ns, limit=1, after="banana")


async def test_a_token_whose_snapshot_is_compacted(cluster: Implementation, api: Api, ns: str) -> None:
    if cluster.compact is None or cluster.name == "kube":
        pytest.skip("its cache serves old snapshots even when etcd has forgotten them")
    for i in range(4):
        await api.create(SANDBOXES, sandbox(f"s{i}"), ns)
    page = await api.list(SANDBOXES, ns, limit=2)
    await api.delete(SANDBOXES, "s3", ns)
    await api.create(SANDBOXES, sandbox("s4"), ns)
    await cluster.compact()
    with pytest.raises(Gone) as caught:
        await api.list(SANDBOXES, ns, limit=2, after=page.after)
    assert (caught.value.code, caught.value.word) == (410, "Expired")
    assert names(await api.list(SANDBOXES, ns)) == ["s0", "s1", "s2", "s4"]
