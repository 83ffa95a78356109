from __future__ import annotations

import tracemalloc
from typing import Any

import msgspec

from sandpool.controllers.cache_transforms import InternTable, SandboxTransform
from sandpool.kube.api import Event, EventType
from sandpool.loop.cache import Cache
from sandpool.model import codec
from sandpool.model.kinds import SANDBOXES
from sandpool.model.labels import POD_NAME, TEMPLATE_REF_HASH
from sandpool.model.metadata import Key
from sandpool.model.sandbox import Sandbox


def a_sandbox(
    name: str,
    revision: int,
    image: str = "python",
    mark: str | None = "0a1b",
    space: str = "default",
    more: dict[str, str] | None = None,
    since: str = "00:00:00",
) -> Sandbox:
    labels = {**({} if mark is None else {TEMPLATE_REF_HASH: mark}), **(more or {})}
    owner = {"apiVersion": "x/v1", "kind": "SandboxWarmPool", "name": "p", "uid": "1", "controller": True}
    metadata: dict[str, Any] = {
        "name": name,
        "namespace": space,
        "uid": name,
        "resourceVersion": str(revision),
        "labels": labels,
        "annotations": {POD_NAME: name},
        "creationTimestamp": f"2026-01-01T{since}Z",
    }
    metadata["ownerReferences"] = [owner]
    spec = {"podTemplate": {"spec": {"containers": [{"name": "main", "image": image}]}}}
    ready = {
        "type": "Ready",
        "status": "True",
        "reason": "R",
        "message": "",
        "lastTransitionTime": f"2026-01-01T{since}Z",
    }
    status = {"conditions": [ready], "nodeName": "far"}
    return codec.decode(SANDBOXES, msgspec.json.encode({"metadata": metadata, "spec": spec, "status": status}))


def test_what_is_equal_is_kept_once_and_everything_stays_as_it_is() -> None:
    keep = SandboxTransform()
    first, second = a_sandbox("a", 1), a_sandbox("b", 2)
    kept = [keep(first), keep(second)]
    assert kept == [first, second]
    assert kept[0].spec is kept[1].spec
    assert kept[0].metadata.labels is kept[1].metadata.labels
    assert kept[0].metadata.owner_references is kept[1].metadata.owner_references


def test_one_that_was_claimed_still_shares_its_spec() -> None:
    keep = SandboxTransform()
    first = keep(a_sandbox("a", 1))
    claimed = a_sandbox("b", 2, more={"agents.x-k8s.io/claim-uid": "1"})
    kept = keep(claimed)
    assert kept == claimed
    assert kept.spec is first.spec
    assert kept.metadata.labels != first.metadata.labels
    assert keep(a_sandbox("c", 3)).metadata.labels is first.metadata.labels


def test_what_differs_is_not_shared() -> None:
    keep = SandboxTransform()
    first = keep(a_sandbox("a", 1))
    others = [
        a_sandbox("b", 2, image="node"),  # the template has changed
        a_sandbox("c", 3, mark="9f9f", image="node"),
        a_sandbox("d", 4, space="other"),
        a_sandbox("e", 5, mark=None),
    ]
    for other in others:
        kept = keep(other)
        assert kept == other
        assert kept.spec is not first.spec


def test_names_times_and_conditions_are_one_text_for_all() -> None:
    keep = SandboxTransform()
    first, second = keep(a_sandbox("a", 1, since="00:00:01")), keep(a_sandbox("b", 2, since="00:00:01"))
    assert first.status.conditions is second.status.conditions
    assert first.metadata.creation_timestamp is second.metadata.creation_timestamp
    assert first.metadata.namespace is second.metadata.namespace
    later = keep(a_sandbox("c", 3, since="00:00:02"))
    assert later == a_sandbox("c", 3, since="00:00:02")
    assert later.status.conditions != first.status.conditions
    again = keep(a_sandbox("a", 4))
    assert again.metadata.name is first.metadata.name
    assert again.metadata.uid is first.metadata.uid
    assert first.metadata.annotations[POD_NAME] is first.metadata.name


def test_what_has_been_here_before_is_not_copied_again() -> None:
    keep = SandboxTransform()
    keep(a_sandbox("a", 1))
    kept = keep(a_sandbox("b", 2))
    assert keep(kept) is kept


def test_a_claimed_one_shares_the_keys_of_its_labels() -> None:
    keep = SandboxTransform()
    keep(a_sandbox("a", 1))
    more = {"agents.x-k8s.io/claim-uid": "1"}
    claimed, other = keep(a_sandbox("b", 2, more=more)), keep(a_sandbox("c", 3, more=more))
    for one, two in zip(claimed.metadata.labels, other.metadata.labels, strict=True):
        assert one is two


def test_the_table_of_equal_values_is_bounded() -> None:
    once = InternTable(most=3)
    for number in range(100):
        assert once[number, "x"] == (number, "x")
    assert len(once) <= 3
    assert once[()] == ()


def test_equal_values_are_one_and_so_are_their_parts() -> None:
    once = InternTable()
    texts = ["".join(["a", "b"]) for _ in range(3)]
    first = once[texts[0], 1]
    assert once[texts[1], 1] is first
    assert once[texts[2], 2][0] is first[0]


def test_a_cache_drops_the_echo_of_an_answer_all_the_same() -> None:
    cache = Cache(SANDBOXES, keep=SandboxTransform())
    steps: list[tuple[Sandbox | None, Sandbox | None]] = []
    cache.replace([a_sandbox("a", 1)], a_sandbox("a", 1).metadata.revision)
    cache.subscribe(lambda old, new: steps.append((old, new)))
    answer = a_sandbox("b", 2)
    cache.upsert(answer)
    cache.apply(Event(EventType.ADDED, answer, answer.metadata.revision))
    assert [new for _, new in steps[1:]] == [answer]
    found = cache.get(Key("default", "b"))
    assert found is not None
    assert found.spec is next(iter(cache)).spec


def test_examples_of_large_sandboxes_are_bounded_by_bytes() -> None:
    """A tenant chooses the mark: it made and deleted large sandboxes, and a thousand of them stayed."""
    keep = SandboxTransform()
    tracemalloc.start()
    try:
        for number in range(60):
            keep(a_sandbox("a", 1, image="x" * 1_000_000, mark=f"{number}"))
            keep(a_sandbox("a", 1, mark=f"more {number}", more={"x": "x" * 1_000_000}))
        kept = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert kept < 30_000_000


def test_a_shared_spec_does_not_hold_on_to_the_object_it_came_from() -> None:
    keep = SandboxTransform()
    text = a_sandbox("a", 1)
    kept = keep(text)
    assert kept == text
    assert keep(kept) is kept


def test_long_conditions_are_not_remembered() -> None:
    once = InternTable()
    long = a_sandbox("a", 1).status.conditions[0]
    long = msgspec.structs.replace(long, message="x" * 5000)
    assert once[(long,)] == (long,)
    assert not once
