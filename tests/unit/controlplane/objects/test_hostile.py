"""Requests that mean harm: what they ask for is refused, or costs no more than it should."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from sandpool.controlplane.admission import causes, name_rules, scalars
from sandpool.controlplane.admission.causes import MOST_REPORTED
from sandpool.controlplane.admission.dialect import bad_base64
from sandpool.controlplane.admission.name_rules import config_key
from sandpool.controlplane.admission.scalars import AMOUNTS
from sandpool.controlplane.objects.document import MAX_BYTES
from sandpool.controlplane.objects.options import WriteOptions
from sandpool.controlplane.objects.recent import Recent
from sandpool.kube.api import Propagation
from sandpool.kube.errors import ApiError, BadRequest, Invalid
from sandpool.model import codec, kinds, names, quantities
from sandpool.model.patches import merge_patch
from sandpool.model.resource import Resource
from support.api.counted_calls import calls_of
from support.api.local_objects import Bench, config_map, pod, read, sandbox
from support.api.opcodes import opcodes

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
    assert len(caught.value.causes) <= MOST_REPORTED + 1
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
    assert len(caught.value.causes) == MOST_REPORTED + 1
    assert "only the first 256 problems are listed" in str(caught.value)
    assert len(told) < 2 * MOST_REPORTED


MANY = 20_000
CLAIM_SPEC = {"resources": {"requests": {"storage": "1Gi"}}}


@pytest.mark.parametrize(
    ("resource", "more"),
    [
        (kinds.CONFIG_MAPS, {"metadata": {"name": "a", "finalizers": [""] * MANY}}),
        (kinds.CONFIG_MAPS, {"metadata": {"name": "a", "finalizers": [f"f{number}" for number in range(MANY)]}}),
        (kinds.CONFIG_MAPS, {"metadata": {"name": "a", "ownerReferences": [{"uid": f"{n}"} for n in range(MANY)]}}),
        (kinds.CONFIG_MAPS, {"data": {f" {number}": "" for number in range(MANY)}}),
        (kinds.CONFIG_MAPS, {part: {f"{n}": "" for n in range(MANY)} for part in ("data", "binaryData")}),
        (kinds.SECRETS, {"data": {f" {number}": "" for number in range(MANY)}}),
        (kinds.SERVICES, {"spec": {"ports": [{}] * MANY}}),
        (kinds.PERSISTENT_VOLUME_CLAIMS, {"spec": {**CLAIM_SPEC, "accessModes": ["x"] * MANY}}),
        (kinds.PODS, {"spec": {"containers": [{"name": "a", "image": "b", "env": [{"name": "="}] * 4096}] * 4}}),
    ],
    ids=["finalizers", "unknown finalizers", "owners", "keys", "keys twice", "secret keys", "ports", "modes", "env"],
)
async def test_rules_of_a_kind_are_not_broken_to_the_end(
    b: Bench, resource: Resource[Any], more: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A request of 150 kilobytes kept the server busy for a fifth of a second; refused ones cost their sender nothing."""
    told: list[str] = []
    for name in ("required", "invalid", "not_supported", "duplicate", "forbidden"):
        tell = getattr(causes, name)
        monkeypatch.setattr(causes, name, lambda *args, tell=tell: told.append(args[0]) or tell(*args))
    wrong = {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": {"name": "a"}, **more}
    with pytest.raises(Invalid) as caught:
        await b.create(resource, wrong)
    assert len(caught.value.causes) == MOST_REPORTED + 1
    assert len(told) < 6 * MOST_REPORTED


async def test_what_cannot_be_decoded_is_not_looked_at_to_the_end(b: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[str] = []
    look = scalars.bad_base64  # type: ignore[attr-defined]
    monkeypatch.setattr(scalars, "bad_base64", lambda text: looked.append(text) or look(text))
    with pytest.raises(BadRequest, match="illegal base64 data at input byte 0"):
        await b.create(kinds.SECRETS, {"metadata": {"name": "a"}, "data": {f"{n}": "!" for n in range(MANY)}})
    assert len(looked) < 2 * MOST_REPORTED


@pytest.mark.parametrize("part", ["labels", "annotations", "finalizers"])
async def test_sound_names_are_found_sound_by_one_look(b: Bench, part: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Forty thousand labels kept the server busy for two tenths of a second."""
    looked: list[str] = []
    for rule in ("qualified_name", "label_value"):
        look = getattr(names, rule)
        monkeypatch.setattr(names, rule, lambda text, look=look: looked.append(text) or look(text))
    sound: Any = {f"example.com/{number}": f"{number}" for number in range(5000)}
    if part == "finalizers":
        sound = list(sound)
    made = await b.create(kinds.CONFIG_MAPS, config_map(**{part: sound}))
    assert made["metadata"][part] == sound
    assert not looked


@pytest.mark.parametrize("rule", [name_rules.label_key, name_rules.annotation_key, name_rules.label_value, config_key])
def test_of_wrong_names_nothing_is_remembered(rule: Any) -> None:
    """Each may be as long as a request, which is refused and so costs nothing."""
    wrong = "-" * 100_000
    before = sys.getrefcount(wrong)
    assert rule(wrong)
    assert sys.getrefcount(wrong) == before


@pytest.mark.parametrize(
    "text", ["", "a", "-", "a-", "a/b", "a.b/c", "A/b", "/b", "a/", "a/b/c", "a..b/c", "a b", "\u00e9", "a\n"]
)
def test_one_look_finds_what_the_rules_find(text: str) -> None:
    assert (name_rules.is_label_key(text) is None) == bool(names.qualified_name(text))
    assert (name_rules.is_label_value(text) is None) == bool(names.label_value(text))


@pytest.mark.parametrize("length", [62, 63, 64, 252, 253, 254])
def test_one_look_counts_characters(length: int) -> None:
    for text in ("a" * length, "a" * length + "/b", "a." * (length // 2) + "a/b", "b/" + "a" * length):
        assert (name_rules.is_label_key(text) is None) == bool(names.qualified_name(text))
        assert (name_rules.is_label_value(text) is None) == bool(names.label_value(text))


async def test_quantities_are_counted(b: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fifty thousand of them, each with hundreds of digits, kept the server busy for three seconds."""
    looked: list[Any] = []
    canonical = quantities.canonical
    monkeypatch.setattr(quantities, "canonical", lambda amount: looked.append(amount) or canonical(amount))
    large = pod()
    large["spec"]["overhead"] = {f"example.com/{number}": f"{number}e399" for number in range(MANY)}
    with pytest.raises(Invalid, match=f"spec.overhead: Too many: {AMOUNTS + 1}: must have at most {AMOUNTS} items"):
        await b.create(kinds.PODS, large)
    assert len(looked) <= AMOUNTS


def test_a_quantity_of_many_digits_is_a_few_steps() -> None:
    steps = 0

    def count(frame: Any, event: str, argument: Any) -> Any:
        nonlocal steps
        steps += event == "line"
        return count

    sys.settrace(count)
    try:
        text = quantities.canonical("1234567e300")
    finally:
        sys.settrace(None)
    assert text == "1234567e300"
    assert steps < 50


@pytest.mark.parametrize("char", ["\x7f", '"', "\u00e9\\"], ids=["control", "quote", "backslash"])
async def test_a_long_value_is_not_shown_to_its_end(b: Bench, char: str) -> None:
    """It was quoted character by character, once for each thing that is wrong with it: a label of 3 MB took five seconds."""
    long = char * 200_000

    def create() -> ApiError:
        with pytest.raises(ApiError) as caught:
            b.objects.create(kinds.CONFIG_MAPS, "default", config_map(labels={long: long})).send(None)
        return caught.value

    made: list[ApiError] = []
    assert calls_of(lambda: made.append(create())) < 50_000
    assert len(str(made[0])) < 100_000
    assert sum(len(cause.message) + len(cause.field) for cause in made[0].causes) < 100_000


async def test_a_large_object_is_not_shown_by_the_patch_that_cannot_be_applied(b: Bench) -> None:
    """Such a patch has a dozen bytes, and every one of them took a third of a second for each megabyte of the object."""
    await b.create(kinds.CONFIG_MAPS, {**config_map(), "data": {"k": "\x7f" * 500_000}})

    def patch(body: Any) -> ApiError:
        with pytest.raises(ApiError) as caught:
            b.objects.patch(kinds.CONFIG_MAPS, "default", "c", merge_patch(body)).send(None)
        return caught.value

    made: list[ApiError] = []
    assert calls_of(lambda: made.append(patch({"data": 5}))) < 50_000
    assert calls_of(lambda: made.append(patch({"kind": None}))) < 50_000
    assert max(len(str(error)) for error in made) < 100_000


async def test_unknown_fields_are_not_all_named(b: Bench) -> None:
    """Writing down forty thousand paths takes longer than everything else that is done with them."""
    made = sandbox()
    made["spec"]["podTemplate"]["spec"] |= {f"unknown{number}": "" for number in range(40_000)}
    work = b.objects.create(kinds.SANDBOXES, "default", made, WriteOptions(dry_run=True))
    written: list[Any] = []

    def create() -> None:
        try:
            work.send(None)
        except StopIteration as end:
            written.append(end.value)

    assert calls_of(create) < 80_000
    assert 256 <= len(written[0].warnings) < 300
    assert b"unknown" not in written[0].record.value


def test_base64_that_is_wrong_at_its_end_is_looked_at_once() -> None:
    assert opcodes(lambda: bad_base64("A" * 100_001)) < 500
    assert bad_base64("AAAA*") == "illegal base64 data at input byte 4"
    assert bad_base64("A" * 9) == "illegal base64 data at input byte 8"
    assert bad_base64("AA\nAA") == ""
