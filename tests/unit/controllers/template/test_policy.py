from __future__ import annotations

from typing import Any

import pytest

from conformance.bodies import template as template_body
from sandpool.controllers.template.policy import Options, policy_body, policy_spec, says
from sandpool.model import labels
from sandpool.model.codec import convert
from sandpool.model.core import NetworkPolicy
from sandpool.model.kinds import NETWORK_POLICIES, TEMPLATES
from sandpool.model.names import name_hash
from sandpool.model.template import SandboxTemplate

LABEL = {labels.TEMPLATE_REF_HASH: name_hash("t")}


def a_template(**spec: Any) -> SandboxTemplate:
    return convert(TEMPLATES, template_body("t", **spec))


def a_policy(spec: dict[str, Any]) -> NetworkPolicy:
    return convert(NETWORK_POLICIES, {"metadata": {"name": "x"}, "spec": spec})


def test_the_strict_policy() -> None:
    assert policy_body(a_template(), Options()) == {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {"name": "t-network-policy", "labels": LABEL, "annotations": {labels.TEMPLATE_REF: "t"}},
        "spec": {
            "podSelector": {"matchLabels": LABEL},
            "policyTypes": ["Ingress", "Egress"],
            "ingress": [
                {
                    "from": [
                        {
                            "podSelector": {"matchLabels": {"app": "sandbox-router"}},
                            "namespaceSelector": {
                                "matchLabels": {"kubernetes.io/metadata.name": "agent-sandbox-system"}
                            },
                        }
                    ]
                }
            ],
            "egress": [
                {
                    "to": [
                        {
                            "ipBlock": {
                                "cidr": "0.0.0.0/0",
                                "except": ["10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "169.254.0.0/16"],
                            }
                        },
                        {"ipBlock": {"cidr": "::/0", "except": ["fc00::/7", "fe80::/10"]}},
                    ]
                }
            ],
        },
    }


def test_where_the_router_is_can_be_chosen() -> None:
    (rule,) = policy_spec("t", a_template().spec, Options("here", "door"))["ingress"]
    (peer,) = rule["from"]
    assert peer["podSelector"]["matchLabels"] == {"app": "door"}
    assert peer["namespaceSelector"]["matchLabels"] == {"kubernetes.io/metadata.name": "here"}


def test_own_rules_are_taken_as_they_are() -> None:
    rule = {"ports": [{"port": 53, "protocol": "UDP"}], "to": [{"namespaceSelector": {}}]}
    spec = policy_spec("t", a_template(networkPolicy={"egress": [rule]}).spec, Options())
    assert spec == {
        "podSelector": {"matchLabels": LABEL},
        "policyTypes": ["Ingress", "Egress"],
        "ingress": [],
        "egress": [rule],
    }


def test_present_but_empty_means_nothing_gets_through() -> None:
    spec = policy_spec("t", a_template(networkPolicy={}).spec, Options())
    assert (spec["ingress"], spec["egress"], spec["policyTypes"]) == ([], [], ["Ingress", "Egress"])


SPEC: dict[str, Any] = {
    "podSelector": {"matchLabels": {"a": "b"}},
    "policyTypes": ["Ingress", "Egress"],
    "ingress": [{"ports": [{"port": 80}], "from": []}],
    "egress": [],
}


@pytest.mark.parametrize(
    "filled_in",
    [
        {"ingress": [{"ports": [{"port": 80, "protocol": "TCP"}]}]},
        {"egress": None},
        {"ingress": [{"ports": [{"port": 80}]}]},
    ],
)
def test_what_a_server_fills_in_makes_no_difference(filled_in: dict[str, Any]) -> None:
    assert says(a_policy({**SPEC, **filled_in}), SPEC)


@pytest.mark.parametrize(
    "other",
    [
        {"ingress": [{"ports": [{"port": 80, "protocol": "UDP"}]}]},
        {"ingress": []},
        {"egress": [{}]},
        {"podSelector": {}},
        {"policyTypes": ["Ingress"]},
    ],
)
def test_what_means_something_else_does(other: dict[str, Any]) -> None:
    assert not says(a_policy({**SPEC, **other}), SPEC)
    assert not says(convert(NETWORK_POLICIES, {"metadata": {"name": "x"}}), SPEC)
