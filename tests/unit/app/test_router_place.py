"""Where the router is that templates let in."""

from __future__ import annotations

import pytest

from sandpool.app.controller_manager import ManagerOptions, controller_options
from sandpool.kube.config import Cluster, Config, User


@pytest.mark.parametrize(
    ("named", "in_pod", "expected"),
    [
        ("", True, "ours"),  # beside us
        ("", False, "agent-sandbox-system"),  # a kubeconfig's namespace is whatever its user works in
        ("edge", True, "edge"),
        ("edge", False, "edge"),
    ],
)
def test_it_is_where_we_are_unless_somebody_says_otherwise(named: str, in_pod: bool, expected: str) -> None:
    config = Config(Cluster(server="https://x"), User(), namespace="ours", in_pod=in_pod)
    assert controller_options(ManagerOptions(router_namespace=named), config).policy.router_namespace == expected
