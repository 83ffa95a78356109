"""The permissions of an installation: each one is used, and none is missing. Last in this folder, when everything has happened."""

from __future__ import annotations

import pytest

from sandpool.assembly.installation.rules import CLUSTER, NAMESPACED, OWN
from sandpool.model.kinds import (
    CLAIMS,
    NETWORK_POLICIES,
    PERSISTENT_VOLUME_CLAIMS,
    PODS,
    POOLS,
    SANDBOXES,
    SERVICES,
    TEMPLATES,
)
from support.kube_access import USER
from support.kube_process import Controller
from support.kube_stage import Stage

pytestmark = [pytest.mark.kube, pytest.mark.timeout(300)]


ON_ADMISSION = "asked by an admission plugin, which no audit log shows; this server has it switched on"
AFTER_DOUBT = "only after an answer was lost, or a cache was behind: see test_failover"
REPEATED = "only when the same thing happens again within minutes"
NOT_HERE = {
    **{("update", f"{kind.plural}/finalizers"): ON_ADMISSION for kind in (SANDBOXES, CLAIMS, POOLS)},
    **{
        ("get", kind.plural): AFTER_DOUBT
        for kind in (SANDBOXES, CLAIMS, POOLS, TEMPLATES, PODS, SERVICES, PERSISTENT_VOLUME_CLAIMS, NETWORK_POLICIES)
    },
    ("patch", "events"): REPEATED,
}


def test_every_permission_is_needed_and_none_is_missing(stage: Stage, racers: list[Controller]) -> None:
    """Last, when all of the above has happened: the processes had these permissions only."""
    for one in racers:
        assert one.stop() == 0, one.tail()
    if not any(each.about == "patch sandboxclaims/status" for each in stage.audit.requests(USER)):
        pytest.skip("it is about what the other tests of this folder do: run them together")
    rules = (*NAMESPACED, *CLUSTER, *OWN)
    granted = {(verb, rule.resource) for rule in rules for verb in rule.verbs}
    used = {(each.verb, each.resource) for each in stage.audit.requests(USER)}
    assert used - granted == {("create", "selfsubjectaccessreviews")}  # anybody may ask what it may do
    assert granted - used - set(NOT_HERE) == set()
