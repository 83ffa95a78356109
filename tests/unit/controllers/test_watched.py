"""What is remembered of pods: of those that belong to others who they are, of ours what the controllers read."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from sandpool.controllers.cache_transforms import PodTransform
from sandpool.model import labels
from sandpool.model.codec import convert
from sandpool.model.kinds import PODS
from sandpool.model.pod import Pod

WHEN = "2026-01-01T00:00:00Z"
STATUS: dict[str, Any] = {
    "phase": "Running",
    "reason": "r",
    "message": "m",
    "conditions": [
        {"type": "Initialized", "status": "True", "lastTransitionTime": WHEN},
        {"type": "Ready", "status": "True", "reason": "x", "message": "y", "lastTransitionTime": WHEN},
        {"type": "PodScheduled", "status": "True", "lastTransitionTime": WHEN},
    ],
    "podIPs": [{"ip": "10.0.0.1"}],
    "containerStatuses": [
        {"name": "runs", "ready": True, "state": {"running": {"startedAt": WHEN}}},
        {"name": "waits", "state": {"waiting": {"reason": "ImagePullBackOff"}}},
    ],
}


def pod(owner: tuple[str, str] | None = ("apps/v1", "ReplicaSet"), **marks: str) -> Pod:
    meta: dict[str, Any] = {"name": "p", "namespace": "n", "uid": "u", "resourceVersion": "7", "labels": marks}
    if owner is not None:
        meta["ownerReferences"] = [
            {"apiVersion": owner[0], "kind": owner[1], "name": "o", "uid": "o", "controller": True}
        ]
    spec = {"containers": [{"name": "main", "image": "x"}], "nodeName": "far"}
    return convert(PODS, {"metadata": meta, "spec": spec, "status": STATUS})


def test_of_others_only_who_they_are() -> None:
    whole = pod(app="web")
    remembered = PodTransform()
    kept = remembered(whole)
    meta = kept.metadata
    assert (meta.key, meta.uid, meta.revision, meta.controller) == (
        whole.metadata.key,
        whole.metadata.uid,
        whole.metadata.revision,
        whole.metadata.controller,
    )
    assert (kept.spec, kept.status, meta.labels) == (Pod().spec, Pod().status, {})
    assert remembered(kept) == kept


@pytest.mark.parametrize(
    "ours",
    [
        pytest.param(pod(None), id="nobody's: a sandbox may take it"),
        pytest.param(pod(("agents.x-k8s.io/v1beta1", "Sandbox")), id="a sandbox's"),
        pytest.param(pod(("agents.x-k8s.io/v1alpha1", "Sandbox")), id="a sandbox's, of old"),
        pytest.param(pod(**{labels.TEMPLATE_REF_HASH: "0"}), id="a policy selects it"),  # type: ignore[arg-type]
        pytest.param(pod(**{labels.ADOPTABLE: "true"}), id="given away"),  # type: ignore[arg-type]
    ],
)
def test_of_what_may_concern_us_everything_that_is_read(ours: Pod) -> None:
    kept = PodTransform()(ours)
    assert kept.metadata == ours.metadata
    assert kept.spec.node_name == "far"
    assert (kept.ready, kept.ips, kept.held_up) == (ours.ready, ours.ips, ours.held_up)
    assert kept.held_up == "container waits waits: ImagePullBackOff"
    for type_ in ("Ready", "PodScheduled"):
        one, whole = kept.condition(type_), ours.condition(type_)
        assert one is not None
        assert whole is not None
        assert (one.status, one.reason, one.message) == (whole.status, whole.reason, whole.message)
    assert (kept.status.phase, kept.status.reason, kept.status.message) == ("Running", "r", "m")


def test_pods_share_what_they_have_in_common_and_are_not_copied_twice() -> None:
    remembered = PodTransform()
    marks: dict[str, Any] = {labels.TEMPLATE_REF_HASH: "0", labels.WARM_POOL: "1"}
    first, second = remembered(pod(**marks)), remembered(pod(**marks))
    assert first.spec is second.spec
    assert first.status.conditions is second.status.conditions
    assert first.metadata.annotations is second.metadata.annotations
    for one, two in zip(first.metadata.labels.items(), second.metadata.labels.items(), strict=True):
        assert one[0] is two[0]
        assert one[1] is two[1]
    assert remembered(first) is first


def test_many_annotations_are_not_remembered_by_template() -> None:
    """A tenant chooses the mark: what a thousand templates had would stay when their pods are gone."""
    remembered = PodTransform()
    many = {f"{number}": "x" for number in range(1000)}
    for marks in (many, {"long": "x" * 10_000}):
        whole = pod(None, **{labels.TEMPLATE_REF_HASH: "t"})
        whole = replace(whole, metadata=replace(whole.metadata, annotations=marks))
        assert remembered(whole).metadata.annotations == marks
    assert not remembered.annotations_by_template
