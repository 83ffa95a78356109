from __future__ import annotations

import pytest

from sandpool.controllers.sandbox.volumes import merged_volumes
from sandpool.model.labels import ADOPTABLE
from unit.controllers.sandbox.views import (
    FOREIGN,
    GONE,
    OURS,
    TRACKING,
    body,
    plan_of,
    pod,
    sandbox,
    templates,
    verbs,
    volume_claim,
)

BOX = sandbox(spec=templates("data"))


def test_made_before_the_pod() -> None:
    plan = plan_of(sandbox(spec=templates("data", labels={"a": "b"}, annotations={"c": "d"})))
    assert verbs(plan) == ["create PersistentVolumeClaim data-box", "create Pod box"]
    made = body(plan, "PersistentVolumeClaim")
    assert made["metadata"] == {
        "name": "data-box", "namespace": "default", "labels": {"a": "b", **TRACKING}, "annotations": {"c": "d"},
        "ownerReferences": [{**OURS, "blockOwnerDeletion": True}],
    }  # fmt: skip
    assert made["spec"] == {"accessModes": ["ReadWriteOnce"]}


def test_ours_is_used() -> None:
    assert verbs(plan_of(BOX, volume_claim())) == ["create Pod box"]


@pytest.mark.parametrize("labels", [{ADOPTABLE: "true"}, TRACKING])
def test_taken_over_with_leave(labels: dict[str, str]) -> None:
    plan = plan_of(BOX, volume_claim(owner=None, labels=labels))
    assert verbs(plan) == ["patch PersistentVolumeClaim data-box", "create Pod box"]
    metadata = body(plan, "PersistentVolumeClaim")["metadata"]
    assert metadata["ownerReferences"] == [{**OURS, "blockOwnerDeletion": True}]
    assert metadata["resourceVersion"] == "7"


def test_one_of_somebody_else_is_refused() -> None:
    plan = plan_of(BOX, volume_claim(owner=FOREIGN))
    assert plan.steps == ()
    assert "belongs to ReplicaSet web" in plan.refused[0]


def test_one_of_nobody_is_refused_without_leave() -> None:
    plan = plan_of(BOX, volume_claim(owner=None))
    assert plan.steps == ()
    assert "adoptable=true" in plan.refused[0]


def test_a_departing_one_is_waited_for() -> None:
    plan = plan_of(BOX, volume_claim(deletionTimestamp=GONE))
    assert (plan.steps, plan.refused) == ((), ())


def test_a_running_pod_is_kept_whatever_becomes_of_its_storage() -> None:
    assert plan_of(BOX, pod(), volume_claim(owner=FOREIGN)).steps == ()


@pytest.mark.parametrize(("names", "word"), [(("",), "no metadata.name"), (("a", "a"), "used twice")])
def test_bad_template_names_are_refused(names: tuple[str, ...], word: str) -> None:
    plan = plan_of(sandbox(spec=templates(*names)))
    assert plan.steps == ()
    assert word in plan.refused[0]


def test_volumes_are_replaced_and_appended_in_order() -> None:
    box = sandbox(spec=templates("b", "a"))
    spec = {"volumes": [{"name": "a", "emptyDir": {}}, {"name": "keep", "emptyDir": {}}]}
    assert [volume["name"] for volume in merged_volumes(spec, box)["volumes"]] == ["keep", "b", "a"]
    assert merged_volumes(spec, box)["volumes"][1] == {"name": "b", "persistentVolumeClaim": {"claimName": "b-box"}}
    assert [volume["name"] for volume in merged_volumes({}, box)["volumes"]] == ["b", "a"]
    assert merged_volumes(spec, sandbox()) is spec
