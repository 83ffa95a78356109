"""What is remembered of pods that belong to others."""

from __future__ import annotations

from typing import Any

import pytest

from sandpool.assembly.followed import remembered
from sandpool.model import labels
from sandpool.model.codec import convert
from sandpool.model.kinds import PODS
from sandpool.model.pod import Pod


def pod(owner: tuple[str, str] | None = ("apps/v1", "ReplicaSet"), **marks: str) -> Pod:
    meta: dict[str, Any] = {"name": "p", "namespace": "n", "uid": "u", "resourceVersion": "7", "labels": marks}
    if owner is not None:
        meta["ownerReferences"] = [
            {"apiVersion": owner[0], "kind": owner[1], "name": "o", "uid": "o", "controller": True}
        ]
    spec = {"containers": [{"name": "main", "image": "x"}], "nodeName": "far"}
    return convert(PODS, {"metadata": meta, "spec": spec, "status": {"phase": "Running"}})


def test_of_others_only_who_they_are() -> None:
    whole = pod(app="web")
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
        pytest.param(pod(**{labels.TEMPLATE_REF_HASH: "0"}), id="a policy selects it"),
        pytest.param(pod(**{labels.ADOPTABLE: "true"}), id="given away"),
    ],
)
def test_whatever_may_concern_us_is_kept_whole(ours: Pod) -> None:
    assert remembered(ours) is ours
