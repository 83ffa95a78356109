from __future__ import annotations

import pytest

from sandpool.controllers.old_references import outdated
from sandpool.model.codec import convert
from sandpool.model.kinds import PODS


@pytest.mark.parametrize(
    ("version", "kind", "old"),
    [
        ("agents.x-k8s.io/v1alpha1", "Sandbox", True),
        ("extensions.agents.x-k8s.io/v1alpha1", "SandboxClaim", True),
        ("agents.x-k8s.io/v1beta1", "Sandbox", False),
        ("apps/v1beta2", "ReplicaSet", False),  # somebody else's business
        ("v1", "Node", False),
    ],
)
def test_owners_that_a_collector_will_not_find(version: str, kind: str, old: bool) -> None:
    owner = {"apiVersion": version, "kind": kind, "name": "o", "uid": "o"}
    assert outdated(convert(PODS, {"metadata": {"name": "p", "ownerReferences": [owner]}})) is old
