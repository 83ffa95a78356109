"""Kubernetes' rules for egress, one by one."""

from __future__ import annotations

from ipaddress import ip_address
from typing import Any

import msgspec
import pytest

from sandpool.controllers.template.policy import Options, policy_body
from sandpool.model.core import NetworkPolicy
from sandpool.model.metadata import Metadata
from sandpool.model.template import SandboxTemplate
from sandpool.node.network.pod import Labels
from sandpool.node.network.policy import Policies, Verdict, port_verdict, verdict
from support.api.policy_bodies import EVERYWHERE, LABELS, PUBLIC, network_policy, to_block


def judge(*policies: NetworkPolicy, to: str = "1.1.1.1", port: int = 443, labels: dict[str, str] = LABELS) -> Verdict:
    held = Policies()
    for policy in policies:
        held.put(policy)
    return verdict(held.rules_of("team", labels), ip_address(to), port)


def test_without_a_policy_nothing_is_reached_and_the_refusal_says_so() -> None:
    found = judge()
    assert not found.allowed
    assert found.reason == "NoPolicy"
    assert "no NetworkPolicy with egress rules selects this pod" in found.message


@pytest.mark.parametrize(
    "policy",
    [
        network_policy(EVERYWHERE, namespace="other"),
        network_policy(EVERYWHERE, selector={"matchLabels": {"app": "another"}}),
        network_policy(EVERYWHERE, types=["Ingress"]),
        network_policy(None),
        network_policy([]),
    ],
)
def test_a_policy_that_says_nothing_about_this_pods_egress_is_none(policy: NetworkPolicy) -> None:
    assert judge(policy).reason == "NoPolicy"


def test_egress_is_meant_where_there_are_egress_rules_and_no_types() -> None:
    assert judge(network_policy(EVERYWHERE)).allowed


def test_a_policy_for_egress_without_rules_denies_and_is_named() -> None:
    found = judge(network_policy(None, types=["Egress"]))
    assert found.reason == "Policy"
    assert "team/out" in found.message


@pytest.mark.parametrize("rule", [{}, {"to": []}, {"to": None, "ports": None}, {"ports": []}])
def test_an_empty_rule_allows_everything(rule: dict[str, Any]) -> None:
    assert judge(network_policy([rule])).allowed
    assert judge(network_policy([rule]), to="10.0.0.1", port=1).allowed
    assert judge(network_policy([rule]), to="2606:4700::1111").allowed


@pytest.mark.parametrize("to", ["127.0.0.1", "169.254.169.254", "::1", "::ffff:127.0.0.1", "fd00:ec2::254", "0.0.0.0"])
def test_no_policy_allows_what_nobody_reaches(to: str) -> None:
    policies = [network_policy([*EVERYWHERE, to_block(f"{to}/32" if "." in to and ":" not in to else f"{to}/128")])]
    found = judge(*policies, to=to)
    assert not found.allowed
    assert found.reason == "Forbidden"


def test_a_block_and_its_exceptions() -> None:
    policy = network_policy([to_block("10.0.0.0/8", "10.1.0.0/16", "10.2.3.4/32")])
    assert judge(policy, to="10.0.0.1").allowed
    assert judge(policy, to="10.2.3.5").allowed
    for to in ("10.1.2.3", "10.2.3.4", "11.0.0.1", "fd00::1"):
        assert not judge(policy, to=to).allowed, to


@pytest.mark.parametrize("rule", [{}, to_block("0.0.0.0/0"), to_block("100.0.0.0/8"), to_block("::/0")])
@pytest.mark.parametrize("to", ["100.64.0.1", "100.127.255.254", "::ffff:100.64.0.1"])
def test_the_range_that_providers_share_is_meant_only_by_its_name(rule: dict[str, Any], to: str) -> None:
    assert not judge(network_policy([rule]), to=to).allowed
    named = network_policy([rule, to_block("100.64.0.0/16")])
    assert judge(named, to="100.64.0.1").allowed
    assert not judge(named, to="100.65.0.1").allowed


def test_a_mapped_address_is_judged_by_the_ipv4_rules() -> None:
    assert judge(network_policy([to_block("1.0.0.0/8")]), to="::ffff:1.1.1.1").allowed
    assert not judge(network_policy([to_block("::/0")]), to="::ffff:1.1.1.1").allowed
    assert not judge(network_policy(PUBLIC), to="::ffff:10.0.0.1").allowed


@pytest.mark.parametrize("to", ["2002:a00:1::1", "64:ff9b::a00:1", "2001:0:a00:1::1", "::a00:1"])
def test_a_private_address_in_a_tunnel_is_a_private_address(to: str) -> None:
    assert not judge(network_policy(PUBLIC), to=to).allowed
    assert judge(network_policy([to_block("::/0")]), to="2606:4700::1111").allowed
    assert not judge(network_policy([to_block("::/0")]), to=to).allowed


def test_ports() -> None:
    def to(port: dict[str, Any]) -> NetworkPolicy:
        return network_policy([to_block("0.0.0.0/0", ports=[port])])

    assert judge(to({"port": 443})).allowed
    assert judge(to({"port": 443, "protocol": "TCP"})).allowed
    assert judge(to({"protocol": "TCP"})).allowed
    assert judge(to({"port": 400, "endPort": 443})).allowed
    assert not judge(to({"port": 80})).allowed
    assert not judge(to({"port": 400, "endPort": 442})).allowed
    assert not judge(to({"port": 443, "protocol": "UDP"})).allowed
    assert not judge(to({"port": 443, "protocol": "SCTP"})).allowed
    assert not judge(to({"protocol": "UDP"})).allowed
    assert not judge(to({"port": "https"})).allowed
    assert "port 443 is not allowed by NetworkPolicy team/out" in judge(to({"port": 80})).message


def test_a_port_that_no_rule_opens_is_known_before_any_address() -> None:
    held = Policies()
    held.put(network_policy([to_block("1.1.1.1/32", ports=[{"port": 443}]), {"to": [{"podSelector": {}}]}]))
    rules = held.rules_of("team", LABELS)
    assert port_verdict(rules, 443).allowed
    assert not port_verdict(rules, 80).allowed


@pytest.mark.parametrize(
    "peer",
    [
        {"podSelector": {}},
        {"namespaceSelector": {}},
        {"podSelector": {}, "namespaceSelector": {}},
        {"podSelector": {}, "ipBlock": {"cidr": "0.0.0.0/0"}},
        {},
        {"ipBlock": {"cidr": "nonsense"}},
        {"ipBlock": {"cidr": ""}},
        {"ipBlock": {"cidr": "0.0.0.0/0", "except": ["nonsense"]}},
    ],
)
def test_peers_that_are_no_readable_block_never_match(peer: dict[str, Any]) -> None:
    assert not judge(network_policy([{"to": [peer]}])).allowed


def test_what_one_policy_allows_is_allowed() -> None:
    first = network_policy([to_block("1.1.1.1/32")], name="first")
    second = network_policy([to_block("2.2.2.2/32")], name="second")
    assert judge(first, second, to="1.1.1.1").allowed
    assert judge(first, second, to="2.2.2.2").allowed
    found = judge(second, first, to="3.3.3.3")
    assert "team/first, team/second" in found.message


def test_a_rules_address_and_port_belong_together() -> None:
    policy = network_policy(
        [to_block("1.1.1.1/32", ports=[{"port": 80}]), to_block("2.2.2.2/32", ports=[{"port": 443}])]
    )
    assert judge(policy, to="1.1.1.1", port=80).allowed
    assert not judge(policy, to="1.1.1.1", port=443).allowed


@pytest.mark.parametrize(
    ("selector", "selected"),
    [
        ({}, True),
        ({"matchLabels": {"app": "box"}}, True),
        ({"matchLabels": {"app": "box", "tier": "x"}}, False),
        ({"matchExpressions": [{"key": "app", "operator": "In", "values": ["a", "box"]}]}, True),
        ({"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["box"]}]}, False),
        ({"matchExpressions": [{"key": "tier", "operator": "DoesNotExist"}]}, True),
        ({"matchExpressions": [{"key": "tier", "operator": "Exists"}]}, False),
    ],
)
def test_selectors(selector: dict[str, Any], selected: bool) -> None:
    assert judge(network_policy(EVERYWHERE, selector=selector)).allowed is selected


@pytest.mark.parametrize(
    "spec",
    [
        b'{"podSelector": 7}',
        b'{"podSelector": {"matchExpressions": [{"key": "a", "operator": "Like"}]}}',
        b'{"egress": 1}',
    ],
)
def test_what_cannot_be_read_holds_for_all_and_allows_nothing(spec: bytes) -> None:
    broken = NetworkPolicy(metadata=Metadata(name="broken", namespace="team"), spec=msgspec.Raw(spec))
    found = judge(broken, labels={"any": "thing"})
    assert not found.allowed
    assert "team/broken cannot be read" in found.message
    assert judge(broken, network_policy(EVERYWHERE)).allowed, "policies are a union, also with a broken one"


def test_the_built_in_policy_of_a_template() -> None:
    """The very object that the template controller writes: the public internet, and nothing around us."""
    made = {"metadata": {"name": "python", "namespace": "team"}, "spec": {"podTemplate": {"spec": {"containers": []}}}}
    body = policy_body(msgspec.json.decode(msgspec.json.encode(made), type=SandboxTemplate), Options())
    body["metadata"]["namespace"] = "team"
    policy = msgspec.json.decode(msgspec.json.encode(body), type=NetworkPolicy)
    labels = body["spec"]["podSelector"]["matchLabels"]
    for to in ("1.1.1.1", "93.184.215.14", "2606:4700::1111"):
        assert judge(policy, to=to, labels=labels).allowed, to
    for to in ("10.0.0.1", "172.31.0.1", "192.168.1.1", "169.254.169.254", "fd00::1", "fe80::1", "127.0.0.1", "::1"):
        assert not judge(policy, to=to, labels=labels).allowed, to


def test_changes_are_told_once_and_only_changes() -> None:
    told: list[str] = []
    held = Policies()
    end = held.subscribe(told.append)
    held.put(network_policy(EVERYWHERE))
    held.put(network_policy(EVERYWHERE))
    held.put(network_policy(PUBLIC))
    held.remove("team", "out")
    held.remove("team", "out")
    held.remove("nowhere", "out")
    end()
    held.put(network_policy(EVERYWHERE))
    assert told == ["team", "team", "team"]


def test_of_a_policy_with_too_many_blocks_nothing_is_allowed_and_the_refusal_says_so() -> None:
    """Each connection is compared with all of it, and everybody else waits meanwhile."""
    but = [f"10.{number >> 8}.{number & 255}.0/24" for number in range(1100)]
    found = judge(network_policy([{"to": [{"ipBlock": {"cidr": "0.0.0.0/0", "except": but}}]}]))
    assert (found.allowed, found.reason) == (False, "Policy")
    assert "it has 1102 rules, blocks, exceptions and ports to go out; at most 1024 are read" in found.message
    assert judge(network_policy([{"to": [{"ipBlock": {"cidr": "0.0.0.0/0", "except": but[:1000]}}]}])).allowed


def test_policies_of_one_pod_count_until_they_are_too_many() -> None:
    blocks = [{"to": [{"ipBlock": {"cidr": f"2.{number >> 8}.{number & 255}.0/24"}} for number in range(1000)]}]
    many = [network_policy(blocks, name=f"m{number}") for number in range(9)]
    assert judge(*many[:4], to="2.0.1.1").allowed
    assert judge(network_policy(EVERYWHERE, name="a"), *many).allowed
    assert not judge(network_policy(EVERYWHERE, name="z"), *many).allowed


def test_which_policies_hold_is_found_out_once_for_each_change(monkeypatch: pytest.MonkeyPatch) -> None:
    held, asked = Policies(), []
    find = held.rules_of
    monkeypatch.setattr(held, "rules_of", lambda *args: asked.append(args) or find(*args))
    labels = Labels(held, "team", LABELS)
    assert not labels.rules().policies
    held.put(network_policy(EVERYWHERE))
    assert [len(labels.rules().policies) for _ in range(5)] == [1] * 5
    assert len(asked) == 2
    labels.labels = {"app": "another"}
    assert labels.rules() is labels.rules()
    held.remove("team", "out")
    assert not labels.rules().policies
    assert len(asked) == 4
