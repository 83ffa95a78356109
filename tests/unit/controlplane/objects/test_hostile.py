"""Requests that mean harm: what they ask for is refused, or costs no more than it should."""

from __future__ import annotations

from typing import Any

import pytest

from sandpool.controlplane.admission import causes
from sandpool.controlplane.admission.causes import MOST_TOLD
from sandpool.controlplane.objects.document import MAX_BYTES
from sandpool.controlplane.objects.options import WriteOptions
from sandpool.controlplane.objects.recent import Recent
from sandpool.kube.api import Propagation
from sandpool.kube.errors import ApiError, BadRequest, Invalid
from sandpool.model import codec, kinds
from sandpool.model.resource import Resource
from support.local_objects import Bench, config_map, pod, read, sandbox

NO_CALENDAR_HAS = (
    "2020-02-30T00:00:00Z",
    "2020-01-01T24:00:00Z",
    "2020-01-01T00:00:60Z",
    "0000-01-01T00:00:00Z",
    "2020-01-01T00:00:00+24:00",
    "2020-01-01T00:00:00x5Z",
)


@pytest.mark.parametrize("time", NO_CALENDAR_HAS)
async def test_what_readers_could_not_read_is_not_stored(b: Bench, time: str) -> None:
    event = {"metadata": {"name": "e"}, "involvedObject": {"namespace": "default"}, "lastTimestamp": time}
    with pytest.raises(BadRequest, match="parsing time"):
        await b.create(kinds.EVENTS, event)
    ending = sandbox()
    ending["spec"]["shutdownTime"] = time
    with pytest.raises(Invalid, match="must be of type date-time"):
        await b.create(kinds.SANDBOXES, ending)


async def test_times_that_are_stored_can_be_read(b: Bench) -> None:
    ending = sandbox()
    for time in ("2020-02-29T23:59:59.123456789+23:59", "0001-01-01T00:00:00Z", "9999-12-31T23:59:59-23:59"):
        ending["spec"]["shutdownTime"] = time
        await b.create(kinds.SANDBOXES, ending)
        assert codec.decode(kinds.SANDBOXES, b.objects.get(kinds.SANDBOXES, "default", "x").value)
        await b.delete(kinds.SANDBOXES, "x")


async def test_revision_of_thousands_of_digits(b: Bench) -> None:
    with pytest.raises(BadRequest, match="resourceVersion"):
        await b.create(kinds.CONFIG_MAPS, config_map(resourceVersion="9" * 5000))
    await b.create(kinds.CONFIG_MAPS, config_map())
    with pytest.raises(BadRequest, match="resourceVersion"):
        await b.put(kinds.CONFIG_MAPS, "c", config_map(resourceVersion="9" * 5000))


@pytest.mark.parametrize("wrong", [5, "kubernetes", True, {"kubernetes": 1}, [1], [None], [["kubernetes"]], [""]])
async def test_finalize_takes_a_list_of_names(b: Bench, wrong: Any) -> None:
    await b.create(kinds.NAMESPACES, {"metadata": {"name": "t"}})
    with pytest.raises(BadRequest):
        await b.put(kinds.NAMESPACES, "t", {"metadata": {"name": "t"}, "spec": {"finalizers": wrong}}, "finalize")
    with pytest.raises(BadRequest):
        await b.put(kinds.NAMESPACES, "t", {"metadata": {"name": "t"}, "spec": [wrong]}, "finalize")
    assert b.get(kinds.NAMESPACES, "t")["spec"] == {"finalizers": ["kubernetes"]}


async def fill(b: Bench, **metadata: Any) -> None:
    """A sandbox that is exactly as large as an object may be, at a revision of one digit."""

    def body(size: int) -> dict[str, Any]:
        made = sandbox(**metadata)
        made["spec"]["podTemplate"]["spec"]["containers"][0]["args"] = ["x" * size]
        return made

    probe = await b.objects.create(kinds.SANDBOXES, "default", body(0), WriteOptions(dry_run=True))
    room = MAX_BYTES - len(probe.record.value) - len(',"resourceVersion":"2"')
    made = await b.objects.create(kinds.SANDBOXES, "default", body(room))
    assert len(made.record.value) == MAX_BYTES
    for number in range(10):
        await b.create(kinds.CONFIG_MAPS, config_map(f"c{number}"))


async def test_the_largest_object_can_be_deleted(b: Bench) -> None:
    await fill(b)
    assert (await b.delete(kinds.SANDBOXES, "x")).finished


async def test_the_largest_object_can_be_marked_for_deletion(b: Bench) -> None:
    await fill(b)
    deleted = await b.delete(kinds.SANDBOXES, "x", propagation=Propagation.FOREGROUND)
    assert "deletionTimestamp" in read(deleted.record)["metadata"]
    await b.patch(kinds.SANDBOXES, "x", {"metadata": {"finalizers": None}})
    assert b.absent(kinds.SANDBOXES, "x")


@pytest.mark.parametrize("grace", [2**63 - 1, 2**40, -(2**63)])
async def test_grace_beyond_all_calendars(b: Bench, grace: int) -> None:
    patient = pod(node="n")
    patient["spec"]["terminationGracePeriodSeconds"] = 2**62
    await b.create(kinds.PODS, patient)
    first = await b.delete(kinds.PODS, "p", grace=grace)
    assert read(first.record)["metadata"]["deletionGracePeriodSeconds"] == max(grace, 1)
    assert (await b.delete(kinds.PODS, "p", grace=0)).finished


async def test_a_pod_that_wants_endless_grace_can_be_deleted(b: Bench) -> None:
    patient = pod(node="n")
    patient["spec"]["terminationGracePeriodSeconds"] = 2**62
    await b.create(kinds.PODS, patient)
    assert not (await b.delete(kinds.PODS, "p")).finished
    assert not (await b.delete(kinds.PODS, "p", grace=30)).finished
    assert (await b.delete(kinds.PODS, "p", grace=0)).finished


async def test_selectors_of_thousands_of_requirements(b: Bench) -> None:
    for query in ({"labels": ",".join(["a"] * 257)}, {"fields": ",".join(f"metadata.name!={n}" for n in range(257))}):
        with pytest.raises(BadRequest, match="257 requirements"):
            b.names_of(kinds.CONFIG_MAPS, **query)
    values = ",".join(map(str, range(5000)))
    assert b.names_of(kinds.CONFIG_MAPS, labels=f"a in ({values})") == []


@pytest.mark.parametrize("part", ["labels", "annotations", "ownerReferences", "finalizers"])
async def test_hundreds_of_thousands_of_problems_are_not_all_told(b: Bench, part: str) -> None:
    wrong: Any = {f"{number} x": "" for number in range(20_000)}
    if part == "ownerReferences":
        owner = {"apiVersion": "v1", "kind": "Pod", "name": "p", "controller": True}
        wrong = [{**owner, "uid": str(number)} for number in range(20_000)]
    elif part == "finalizers":
        wrong = list(wrong)
    with pytest.raises(ApiError) as caught:
        await b.create(kinds.CONFIG_MAPS, config_map(**{part: wrong}))
    assert len(caught.value.causes) <= MOST_TOLD + 1
    assert len(str(caught.value)) < 8_000_000


@pytest.mark.timeout(30)
async def test_thousands_of_owners_are_not_compared_with_each_other(b: Bench) -> None:
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "p"}
    owners = [{**owner, "uid": str(number)} for number in range(30_000)]
    made = await b.create(kinds.CONFIG_MAPS, config_map(ownerReferences=[*owners, owners[0]]))
    assert made["metadata"]["ownerReferences"] == owners


def test_what_is_remembered_is_bounded_by_bytes_too() -> None:
    recent: Recent[int, str] = Recent(most=100, size=1000)
    for key in range(1000):
        recent.keep(key, "small", 1)
    assert sum(recent.get(key) is not None for key in range(1000)) in range(75, 101)
    assert recent.get(999) == "small"
    recent.keep(1000, "huge", 5000)
    assert recent.get(1000) == "huge", "the newest is always kept"
    assert not any(recent.get(key) for key in range(1000))
    recent.keep(1001, "next", 10)
    assert recent.get(1000) is None
    assert recent.get(1001) == "next"


@pytest.mark.parametrize(
    ("resource", "spec"),
    [
        (kinds.PODS, {"containers": [{}] * 20_000}),
        (kinds.PODS, {"containers": [{"name": "a", "image": "b", "env": [{}] * 20_000}]}),
        (kinds.SANDBOXES, {"podTemplate": {"spec": {"containers": [{}] * 20_000}}}),
        (kinds.SANDBOXES, {"volumeClaimTemplates": [1] * 20_000}),
    ],
    ids=["containers", "variables", "a sandbox's containers", "claims that are none"],
)
async def test_what_is_wrong_again_and_again_is_not_looked_at_to_the_end(
    b: Bench, resource: Resource[Any], spec: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A request of three megabytes of them kept the server busy for thirteen seconds."""
    told: list[str] = []
    for name in ("required", "invalid"):
        tell = getattr(causes, name)
        monkeypatch.setattr(causes, name, lambda *args, tell=tell: told.append(args[0]) or tell(*args))
    wrong = {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": {"name": "a"}, "spec": spec}
    with pytest.raises(Invalid) as caught:
        await b.create(resource, wrong)
    assert len(caught.value.causes) == MOST_TOLD + 1
    assert "only the first 256 problems are told" in str(caught.value)
    assert len(told) < 2 * MOST_TOLD
