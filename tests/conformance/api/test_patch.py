"""What patches make of objects: nothing lost, nothing invented, and a revision only for a difference."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

import pytest

from conformance.bodies import core, metadata, pod, sandbox
from sandpool.kube.api import Api
from sandpool.kube.errors import BadRequest, Invalid, NotFound, UnsupportedMedia
from sandpool.model.kinds import CONFIG_MAPS, PODS, SANDBOXES, TEMPLATES, raw
from sandpool.model.patches import Patch, PatchType, json_patch, merge_patch


async def test_concurrent_patches_of_object_and_status_lose_nothing(api: Api, ns: str) -> None:
    await api.create(SANDBOXES, sandbox("s"), ns)
    labels = [api.patch(SANDBOXES, "s", merge_patch({"metadata": {"labels": {f"l{i}": "x"}}}), ns) for i in range(25)]
    states = [api.patch_status(SANDBOXES, "s", merge_patch({"status": {"nodeName": f"n{i}"}}), ns) for i in range(25)]
    written = await asyncio.gather(*(work for pair in zip(labels, states, strict=True) for work in pair))
    now = await api.get(SANDBOXES, "s", ns)
    assert set(now.metadata.labels) == {f"l{i}" for i in range(25)}
    assert now.status.node_name.startswith("n")
    assert len({each.metadata.revision for each in written}) == len(written)
    assert now.metadata.revision == max(each.metadata.revision for each in written)


class Colour(StrEnum):
    BLUE = "blue"


async def test_bodies_are_taken_as_a_wire_would_carry_them(api: Api, ns: str) -> None:
    """Tuples, enums and times are lists and text to every implementation, not only where JSON lies in between."""
    body = sandbox("s")
    body["metadata"]["finalizers"] = ("example.com/held",)
    made = await api.create(raw(SANDBOXES), body, ns)
    assert made.body["metadata"]["finalizers"] == ["example.com/held"]
    moment = datetime(2030, 1, 2, 3, 4, 5, tzinfo=UTC)
    change = {"metadata": {"labels": {"colour": Colour.BLUE}, "finalizers": ()}, "spec": {"shutdownTime": moment}}
    changed = await api.patch(raw(SANDBOXES), "s", merge_patch(change), ns)
    assert changed.body["metadata"]["labels"]["colour"] == "blue"
    assert "finalizers" not in changed.body["metadata"]
    assert changed.body["spec"]["shutdownTime"] == "2030-01-02T03:04:05Z"


@pytest.mark.parametrize(
    "patch",
    [
        merge_patch({}),
        merge_patch({"metadata": {"labels": {"a": "b"}}}),
        merge_patch({"spec": {"operatingMode": "Running", "shutdownTime": None}}),
        merge_patch({"spec": {"operatingMode": None}}),
        merge_patch({"status": {"nodeName": "ignored"}}),
        json_patch([]),
        json_patch([{"op": "replace", "path": "/metadata/labels/a", "value": "b"}]),
        json_patch([{"op": "test", "path": "/spec/operatingMode", "value": "Running"}]),
    ],
    ids=lambda patch: f"{patch.type.name.lower()} {patch.body}",
)
async def test_no_difference_keeps_the_revision(api: Api, ns: str, patch: Patch) -> None:
    made = await api.create(SANDBOXES, sandbox(metadata=metadata("s", labels={"a": "b"})), ns)
    assert await api.patch(SANDBOXES, "s", patch, ns) == made
    assert await api.get(SANDBOXES, "s", ns) == made


async def test_no_difference_in_a_status_keeps_the_revision(api: Api, ns: str) -> None:
    await api.create(SANDBOXES, sandbox("s"), ns)
    body = {"status": {"nodeName": "n", "podIPs": ["10.0.0.1"]}}
    first = await api.patch_status(SANDBOXES, "s", merge_patch(body), ns)
    assert await api.patch_status(SANDBOXES, "s", merge_patch(body), ns) == first
    only_spec = {"spec": {"operatingMode": "Suspended"}, "metadata": {"labels": {"a": "b"}}}
    assert await api.patch_status(SANDBOXES, "s", merge_patch(only_spec), ns) == first


async def test_generation_counts_changes_of_the_spec_only(api: Api, ns: str) -> None:
    made = await api.create(SANDBOXES, sandbox("s"), ns)
    assert made.metadata.generation == 1
    labelled = await api.patch(SANDBOXES, "s", merge_patch({"metadata": {"labels": {"a": "b"}, "generation": 9}}), ns)
    assert labelled.metadata.generation == 1
    reported = await api.patch_status(SANDBOXES, "s", merge_patch({"status": {"nodeName": "n"}}), ns)
    assert reported.metadata.generation == 1
    changed = await api.patch(SANDBOXES, "s", merge_patch({"spec": {"operatingMode": "Suspended"}}), ns)
    assert changed.metadata.generation == 2
    both = await api.patch(
        SANDBOXES, "s", merge_patch({"spec": {"service": True}, "metadata": {"labels": {"c": "d"}}}), ns
    )
    assert both.metadata.generation == 3
    assert both.status.node_name == "n"


async def test_object_and_status_are_apart(api: Api, ns: str) -> None:
    await api.create(SANDBOXES, sandbox("s"), ns)
    body: dict[str, Any] = {"metadata": {"labels": {"a": "b"}}, "status": {"nodeName": "n"}}
    patched = await api.patch(SANDBOXES, "s", merge_patch(body), ns)
    assert (patched.metadata.labels, patched.status.node_name) == ({"a": "b"}, "")
    body = {"metadata": {"labels": {"c": "d"}}, "spec": {"service": True}, "status": {"nodeName": "n"}}
    patched = await api.patch_status(SANDBOXES, "s", merge_patch(body), ns)
    assert (patched.metadata.labels, patched.spec.service, patched.status.node_name) == ({"a": "b"}, None, "n")


async def test_identity_cannot_be_patched(api: Api, ns: str) -> None:
    made = await api.create(SANDBOXES, sandbox("s"), ns)
    moved = await api.patch(
        SANDBOXES,
        "s",
        merge_patch({"metadata": {"creationTimestamp": "2020-01-01T00:00:00Z", "labels": {"a": "b"}}}),
        ns,
    )
    assert moved.metadata.creation_timestamp == made.metadata.creation_timestamp
    for change in ({"name": "t"}, {"namespace": "elsewhere"}):
        with pytest.raises(BadRequest):
            await api.patch(SANDBOXES, "s", merge_patch({"metadata": change}), ns)
    assert await api.get(SANDBOXES, "s", ns) == moved


async def test_merge_patch_nulls(api: Api, ns: str) -> None:
    whole = raw(SANDBOXES)
    spec = {"shutdownTime": "2030-01-01T00:00:00Z", "operatingMode": "Suspended", "service": True}
    await api.create(SANDBOXES, sandbox("s", spec=spec), ns)
    nulls = {
        "spec": {"shutdownTime": None, "operatingMode": None, "service": None},
        "metadata": {"labels": {"x": None}},
    }
    patched = await api.patch(whole, "s", merge_patch(nulls), ns)
    assert "shutdownTime" not in patched.body["spec"]
    assert "service" not in patched.body["spec"]
    assert patched.body["spec"]["operatingMode"] == "Running"  # its default
    with pytest.raises(Invalid) as caught:
        await api.patch(SANDBOXES, "s", merge_patch({"spec": {"podTemplate": None}}), ns)
    assert ("FieldValueRequired", "spec.podTemplate") in {(c.reason, c.field) for c in caught.value.causes}


async def test_merge_patch_replaces_lists(api: Api, ns: str) -> None:
    await api.create(SANDBOXES, sandbox(metadata=metadata("s", finalizers=["example.com/a", "example.com/b"])), ns)
    patched = await api.patch(SANDBOXES, "s", merge_patch({"metadata": {"finalizers": ["example.com/c"]}}), ns)
    assert patched.metadata.finalizers == ("example.com/c",)
    await api.patch(SANDBOXES, "s", merge_patch({"metadata": {"finalizers": None}}), ns)


@pytest.mark.parametrize(
    "operations",
    [
        [{"op": "test", "path": "/metadata/uid", "value": "other"}],
        [{"op": "test", "path": "/metadata/labels/absent", "value": "x"}],
        [{"op": "test", "path": "/status/nodeName", "value": None}],
        [{"op": "remove", "path": "/metadata/labels/absent"}],
        [{"op": "remove", "path": "/status/nodeName"}],
        [{"op": "replace", "path": "/status/nodeName", "value": "n"}],
        [{"op": "add", "path": "/status/nodeName", "value": "n"}],
        [{"op": "add", "path": "/metadata/finalizers/3", "value": "example.com/a"}],
        [{"op": "add", "path": "/metadata/labels/kept", "value": "no"}, {"op": "remove", "path": "/spec/absent"}],
        [{"op": "unknown", "path": "/spec"}],
    ],
    ids=lambda operations: "; ".join(f"{o['op']} {o['path']}" for o in operations),
)
async def test_json_patch_that_cannot_be_applied(api: Api, ns: str, operations: list[dict[str, Any]]) -> None:
    made = await api.create(SANDBOXES, sandbox(metadata=metadata("s", labels={"a": "b"})), ns)
    with pytest.raises(Invalid) as caught:
        await api.patch(SANDBOXES, "s", json_patch(operations), ns)
    assert (caught.value.code, caught.value.causes, caught.value.details) == (422, (), {})
    assert await api.get(SANDBOXES, "s", ns) == made


async def test_json_patch_operations(api: Api, ns: str) -> None:
    start = metadata("s", labels={"a": "b"}, annotations={"x/y": "z"}, finalizers=["example.com/a"])
    await api.create(SANDBOXES, sandbox(metadata=start), ns)
    operations: list[dict[str, Any]] = [
        {"op": "test", "path": "/metadata/finalizers", "value": ["example.com/a"]},
        {"op": "add", "path": "/metadata/finalizers/0", "value": "example.com/0"},
        {"op": "add", "path": "/metadata/finalizers/-", "value": "example.com/z"},
        {"op": "copy", "from": "/metadata/labels/a", "path": "/metadata/labels/c"},
        {"op": "move", "from": "/metadata/labels/a", "path": "/metadata/labels/d"},
        {"op": "replace", "path": "/metadata/annotations/x~1y", "value": "w"},
        {"op": "replace", "path": "/metadata/annotations/new", "value": "v"},  # a real server takes it as an add
    ]
    patched = await api.patch(SANDBOXES, "s", json_patch(operations), ns)
    assert patched.metadata.finalizers == ("example.com/0", "example.com/a", "example.com/z")
    assert patched.metadata.labels == {"c": "b", "d": "b"}
    assert patched.metadata.annotations == {"x/y": "w", "new": "v"}
    await api.patch(SANDBOXES, "s", merge_patch({"metadata": {"finalizers": None}}), ns)


async def test_schema_violation_has_causes(api: Api, ns: str) -> None:
    made = await api.create(SANDBOXES, sandbox("s"), ns)
    for patch in (
        merge_patch({"spec": {"operatingMode": "Odd"}}),
        json_patch([{"op": "replace", "path": "/spec/operatingMode", "value": "Odd"}]),
    ):
        with pytest.raises(Invalid) as caught:
            await api.patch(SANDBOXES, "s", patch, ns)
        causes = [c for c in caught.value.causes if c.field == "spec.operatingMode"]
        assert [(c.reason, c.message) for c in causes] == [
            ("FieldValueNotSupported", 'Unsupported value: "Odd": supported values: "Running", "Suspended"')
        ]
        assert caught.value.details == {"name": "s", "group": "agents.x-k8s.io", "kind": "Sandbox"}
        assert caught.value.message.startswith('Sandbox.agents.x-k8s.io "s" is invalid: ')
    assert await api.get(SANDBOXES, "s", ns) == made


async def test_volume_claim_templates_are_immutable(api: Api, ns: str) -> None:
    volumes = [{"metadata": {"name": "d"}, "spec": {"accessModes": ["ReadWriteOnce"]}}]
    await api.create(SANDBOXES, sandbox("with", spec={"volumeClaimTemplates": volumes}), ns)
    await api.create(SANDBOXES, sandbox("without"), ns)
    other = [{"metadata": {"name": "e"}, "spec": {"accessModes": ["ReadWriteOnce"]}}]
    for name, value in (("with", other), ("with", []), ("with", None), ("without", volumes), ("without", [])):
        with pytest.raises(Invalid) as caught:
            await api.patch(SANDBOXES, name, merge_patch({"spec": {"volumeClaimTemplates": value}}), ns)
        assert [(c.reason, c.field, c.message) for c in caught.value.causes] == [
            ("FieldValueInvalid", "spec", "Invalid value: volumeClaimTemplates is immutable")
        ]
    same = await api.patch(SANDBOXES, "with", merge_patch({"spec": {"volumeClaimTemplates": volumes}}), ns)
    assert same.metadata.generation == 1


async def test_strategic_patch_is_for_core_kinds(api: Api, ns: str) -> None:
    body = {"metadata": {"labels": {"a": "b"}}}
    await api.create(SANDBOXES, sandbox("s"), ns)
    with pytest.raises(UnsupportedMedia) as caught:
        await api.patch(SANDBOXES, "s", Patch(PatchType.STRATEGIC, body), ns)
    assert (caught.value.code, caught.value.word) == (415, "UnsupportedMediaType")
    await api.create(PODS, pod("p"), ns)
    assert (await api.patch(PODS, "p", Patch(PatchType.STRATEGIC, body), ns)).metadata.labels == {"a": "b"}
    ready = {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}
    await api.patch_status(PODS, "p", Patch(PatchType.STRATEGIC, ready), ns)
    scheduled = {"status": {"conditions": [{"type": "PodScheduled", "status": "True"}]}}
    merged = await api.patch_status(PODS, "p", Patch(PatchType.STRATEGIC, scheduled), ns)
    assert {c.type for c in merged.status.conditions} == {"Ready", "PodScheduled"}


async def test_patch_of_what_is_absent(api: Api, ns: str) -> None:
    for work in (
        api.patch(SANDBOXES, "s", merge_patch({}), ns),
        api.patch_status(SANDBOXES, "s", merge_patch({}), ns),
        api.patch(SANDBOXES, "s", json_patch([]), ns),
        api.patch(CONFIG_MAPS, "c", merge_patch({}), ns),
    ):
        with pytest.raises(NotFound):
            await work


async def test_a_kind_without_a_status_has_no_status_path(api: Api, ns: str) -> None:
    await api.create(CONFIG_MAPS, core("ConfigMap", "c"), ns)
    with pytest.raises(NotFound):
        await api.patch_status(CONFIG_MAPS, "c", merge_patch({"data": {"a": "b"}}), ns)
    with pytest.raises(NotFound):
        await api.patch_status(TEMPLATES, "t", merge_patch({}), ns)
