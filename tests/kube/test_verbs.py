"""The permissions of an installation: each one is used, and none is missing.

Last in this folder, when everything has happened: pools, claims, rollouts, take-over, refusals, bursts, failover. In all of it
the controllers had these permissions only; what they used them for is what the API servers wrote into their audit logs.
"""

from __future__ import annotations

import pytest

from sandpool.install.rules import CLUSTER, NAMESPACED, OWN
from sandpool.model.kinds import CLAIMS, POOLS, SANDBOXES
from support.kube.ledger import LEDGER

pytestmark = [pytest.mark.kube, pytest.mark.alone]

RUNS = {"product", "takeover", "burst", "failover"}
IN_NO_LOG = {("update", f"{kind.plural}/finalizers") for kind in (SANDBOXES, CLAIMS, POOLS)}
"""An admission plugin asks for these, which no audit log shows; product/test_owners.py shows that each is needed."""


def test_every_permission_is_needed_and_none_is_missing(request: pytest.FixtureRequest) -> None:
    missing = RUNS - LEDGER.runs
    if missing and (
        request.config.args_source is not pytest.Config.ArgsSource.TESTPATHS or request.config.option.keyword
    ):
        pytest.skip(f"it is about what the other tests do; these did not run: {', '.join(sorted(missing))}")
    assert not missing
    rules = (*NAMESPACED, *CLUSTER, *OWN)
    granted = {(verb, rule.resource) for rule in rules for verb in rule.verbs}
    assert LEDGER.used - granted == {("create", "selfsubjectaccessreviews")}  # anybody may ask what it may do
    assert granted - LEDGER.used == IN_NO_LOG
