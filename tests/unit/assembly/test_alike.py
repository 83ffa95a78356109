from __future__ import annotations

from typing import Any

import msgspec

from sandpool.assembly.alike import Alike
from sandpool.kube.api import Event, EventType
from sandpool.loop.cache import Cache
from sandpool.model import codec
from sandpool.model.kinds import SANDBOXES
from sandpool.model.labels import TEMPLATE_REF_HASH
from sandpool.model.metadata import Key
from sandpool.model.sandbox import Sandbox


def a_sandbox(
    name: str,
    revision: int,
    image: str = "python",
    mark: str | None = "0a1b",
    space: str = "default",
    more: dict[str, str] | None = None,
) -> Sandbox:
    labels = {**({} if mark is None else {TEMPLATE_REF_HASH: mark}), **(more or {})}
    owner = {"apiVersion": "x/v1", "kind": "SandboxWarmPool", "name": "p", "uid": "1", "controller": True}
    metadata: dict[str, Any] = {
        "name": name,
        "namespace": space,
        "uid": name,
        "resourceVersion": str(revision),
        "labels": labels,
    }
    metadata["ownerReferences"] = [owner]
    spec = {"podTemplate": {"spec": {"containers": [{"name": "main", "image": image}]}}}
    return codec.decode(SANDBOXES, msgspec.json.encode({"metadata": metadata, "spec": spec}))


def test_what_is_equal_is_kept_once_and_everything_stays_as_it_is() -> None:
    keep = Alike()
    first, second = a_sandbox("a", 1), a_sandbox("b", 2)
    kept = [keep(first), keep(second)]
    assert kept == [first, second]
    assert kept[0].spec is kept[1].spec
    assert kept[0].metadata.labels is kept[1].metadata.labels
    assert kept[0].metadata.owner_references is kept[1].metadata.owner_references


def test_one_that_was_claimed_still_shares_its_spec() -> None:
    keep = Alike()
    first = keep(a_sandbox("a", 1))
    claimed = a_sandbox("b", 2, more={"agents.x-k8s.io/claim-uid": "1"})
    kept = keep(claimed)
    assert kept == claimed
    assert kept.spec is first.spec
    assert kept.metadata.labels != first.metadata.labels
    assert keep(a_sandbox("c", 3)).metadata.labels is first.metadata.labels


def test_what_differs_is_not_shared() -> None:
    keep = Alike()
    keep(a_sandbox("a", 1))
    others = [
        a_sandbox("b", 2, image="node"),  # the template has changed
        a_sandbox("c", 3, mark="9f9f", image="node"),
        a_sandbox("d", 4, space="other"),
        a_sandbox("e", 5, mark=None),
    ]
    for other in others:
        assert keep(other) is other


def test_a_cache_drops_the_echo_of_an_answer_all_the_same() -> None:
    cache = Cache(SANDBOXES, keep=Alike())
    steps: list[tuple[Sandbox | None, Sandbox | None]] = []
    cache.replace([a_sandbox("a", 1)], a_sandbox("a", 1).metadata.revision)
    cache.subscribe(lambda old, new: steps.append((old, new)))
    answer = a_sandbox("b", 2)
    cache.learn(answer)
    cache.apply(Event(EventType.ADDED, answer, answer.metadata.revision))
    assert [new for _, new in steps[1:]] == [answer]
    found = cache.get(Key("default", "b"))
    assert found is not None
    assert found.spec is next(iter(cache)).spec
