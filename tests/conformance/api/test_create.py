"""Creation: what a server gives every object, what it fills in, what it drops and what it refuses."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest

from conformance.bodies import claim, core, metadata, pool, sandbox, template
from sandpool.kube.api import Api
from sandpool.kube.errors import AlreadyExists, ApiError, BadRequest, Invalid, NotFound
from sandpool.model.kinds import CLAIMS, CONFIG_MAPS, NAMESPACES, POOLS, SANDBOXES, TEMPLATES, raw


async def test_create_gives_identity(api: Api, ns: str) -> None:
    made = await api.create(SANDBOXES, sandbox("s"), ns)
    assert (made.metadata.name, made.metadata.namespace, made.metadata.generation) == ("s", ns, 1)
    UUID(made.metadata.uid)
    assert made.metadata.revision > 0
    assert made.metadata.creation_timestamp is not None
    assert abs(datetime.now(UTC) - made.metadata.creation_timestamp) < timedelta(minutes=5)
    assert made.metadata.creation_timestamp.microsecond == 0
    assert await api.get(SANDBOXES, "s", ns) == made


async def test_create_from_a_typed_object(api: Api, ns: str) -> None:
    first = await api.create(CLAIMS, claim("a"), ns)
    spec = type(first)(spec=first.spec, metadata=type(first.metadata)(name="b", labels={"x": "y"}))
    second = await api.create(CLAIMS, spec, ns)
    assert (second.metadata.name, second.metadata.labels, second.spec) == ("b", {"x": "y"}, first.spec)


async def test_create_ignores_what_the_server_decides(api: Api, ns: str) -> None:
    mine = metadata(
        "s",
        uid="mine",
        generation=7,
        creationTimestamp="2020-01-01T00:00:00Z",
        deletionTimestamp="2020-01-01T00:00:00Z",
    )
    made = await api.create(SANDBOXES, sandbox(metadata=mine, status={"nodeName": "n"}), ns)
    assert made.metadata.uid != "mine"
    assert (made.metadata.generation, made.metadata.leaving, made.status.node_name) == (1, False, "")
    assert made.metadata.creation_timestamp is not None
    assert made.metadata.creation_timestamp.year > 2020


async def test_create_twice(api: Api, ns: str) -> None:
    made = await api.create(SANDBOXES, sandbox("s"), ns)
    with pytest.raises(AlreadyExists) as caught:
        await api.create(SANDBOXES, sandbox("s"), ns)
    assert (caught.value.code, caught.value.message) == (409, 'sandboxes.agents.x-k8s.io "s" already exists')
    assert caught.value.details == {"name": "s", "group": "agents.x-k8s.io", "kind": "sandboxes"}
    assert await api.get(SANDBOXES, "s", ns) == made


async def test_create_is_won_once(api: Api, ns: str) -> None:
    async def attempt(i: int) -> str:
        try:
            return (
                await api.create(SANDBOXES, sandbox(metadata=metadata("s", labels={"i": str(i)})), ns)
            ).metadata.labels["i"]
        except AlreadyExists:
            return ""

    won = [each for each in await asyncio.gather(*(attempt(i) for i in range(20))) if each]
    assert len(won) == 1
    assert (await api.get(SANDBOXES, "s", ns)).metadata.labels == {"i": won[0]}


async def test_generate_name(api: Api, ns: str) -> None:
    made = await asyncio.gather(
        *(api.create(SANDBOXES, sandbox(metadata={"generateName": "g-"}), ns) for _ in range(10))
    )
    names = {each.metadata.name for each in made}
    assert len(names) == 10
    assert all(name.startswith("g-") and len(name) > 5 for name in names)
    assert {each.metadata.generate_name for each in made} == {"g-"}


async def test_created_anew_it_is_another_object(api: Api, ns: str) -> None:
    old = await api.create(SANDBOXES, sandbox("s"), ns)
    await api.delete(SANDBOXES, "s", ns)
    new = await api.create(SANDBOXES, sandbox("s"), ns)
    assert new.metadata.uid != old.metadata.uid
    assert new.metadata.revision > old.metadata.revision


async def test_defaults(api: Api, ns: str) -> None:
    box = await api.create(raw(SANDBOXES), sandbox("s"), ns)
    assert (box.body["spec"]["operatingMode"], box.body["spec"]["shutdownPolicy"]) == ("Running", "Retain")
    assert "service" not in box.body["spec"]
    assert (await api.create(raw(POOLS), pool("p"), ns)).body["spec"] == {
        "replicas": 1,
        "sandboxTemplateRef": {"name": "t"},
    }
    assert (await api.create(raw(CLAIMS), claim("c", lifecycle={}), ns)).body["spec"]["lifecycle"] == {
        "shutdownPolicy": "Retain"
    }
    made = (await api.create(raw(TEMPLATES), template("t"), ns)).body["spec"]
    assert made["networkPolicyManagement"] == "Managed"
    assert made["envVarsInjectionPolicy"] == made["volumeClaimTemplatesPolicy"] == "Disallowed"


async def test_unknown_fields_are_dropped(api: Api, ns: str) -> None:
    body = sandbox(
        "s", spec={"banana": 1, "podTemplate": {"spec": {"containers": [{"name": "m", "image": "i", "fig": 2}]}}}
    )
    made = await api.create(raw(SANDBOXES), {**body, "cherry": 3}, ns)
    assert "cherry" not in made.body
    assert "banana" not in made.body["spec"]
    assert made.body["spec"]["podTemplate"]["spec"]["containers"][0] == {"name": "m", "image": "i"}


@pytest.mark.parametrize(
    ("body", "reason", "field"),
    [
        ({k: v for k, v in sandbox("s").items() if k != "spec"}, "FieldValueRequired", "spec"),
        (sandbox("s", spec={"podTemplate": {"spec": {}}}), "FieldValueRequired", "spec.podTemplate.spec.containers"),
        (sandbox("s", spec={"operatingMode": "Odd"}), "FieldValueNotSupported", "spec.operatingMode"),
        (sandbox("s", spec={"service": "yes"}), "FieldValueTypeInvalid", "spec.service"),
        (sandbox("s", spec={"shutdownTime": "soon"}), "FieldValueTypeInvalid", "spec.shutdownTime"),
        (sandbox("Upper"), "FieldValueInvalid", "metadata.name"),
        (sandbox(metadata={}), "FieldValueRequired", "metadata.name"),
        (sandbox(metadata=metadata(labels={"a b": "c"})), "FieldValueInvalid", "metadata.labels"),
        (sandbox(metadata=metadata(annotations={"a b": "c"})), "FieldValueInvalid", "metadata.annotations"),
    ],
)
async def test_refused_with_causes(api: Api, ns: str, body: dict[str, object], reason: str, field: str) -> None:
    with pytest.raises(Invalid) as caught:
        await api.create(SANDBOXES, body, ns)
    assert (reason, field) in {(c.reason, c.field) for c in caught.value.causes}
    assert (await api.list(SANDBOXES, ns)).items == ()


async def test_refused_before_any_rule(api: Api, ns: str) -> None:
    for body in (sandbox(metadata=metadata(namespace="elsewhere")), sandbox(metadata=metadata(labels={"a": 1}))):
        with pytest.raises(BadRequest):
            await api.create(SANDBOXES, body, ns)
    with pytest.raises(ApiError):
        await api.create(SANDBOXES, sandbox(metadata=metadata(resourceVersion="5")), ns)
    assert (await api.list(SANDBOXES, ns)).items == ()


async def test_in_an_absent_namespace(api: Api, ns: str) -> None:
    with pytest.raises(NotFound) as caught:
        await api.create(SANDBOXES, sandbox("s"), f"{ns}-absent")
    assert caught.value.message == f'namespaces "{ns}-absent" not found'
    assert caught.value.details == {"name": f"{ns}-absent", "kind": "namespaces"}
    assert (await api.list(SANDBOXES, f"{ns}-absent")).items == ()


async def test_a_namespace(api: Api, ns: str) -> None:
    made = await api.get(NAMESPACES, ns)
    assert made.status.phase == "Active"
    assert made.metadata.labels["kubernetes.io/metadata.name"] == ns
    assert made.metadata.namespace == ""


async def test_kinds_without_generation(api: Api, ns: str) -> None:
    made = await api.create(CONFIG_MAPS, core("ConfigMap", "c", data={"k": "v"}), ns)
    assert (made.metadata.generation, made.data) == (0, {"k": "v"})
