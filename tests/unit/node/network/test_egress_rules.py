"""The operator's ceiling: policies open what lies below it, and nothing else, however an address is written."""

from __future__ import annotations

from ipaddress import ip_address
from typing import Any

import pytest

from sandpool.node.network.egress_rules import UNLIMITED, CeilingError, ceiling_of
from sandpool.node.network.policy import Policies, Verdict, port_verdict, verdict
from support.api.policy_bodies import EVERYWHERE, LABELS, network_policy, to_block


def judge(*allowed: str, to: str, port: int = 443, egress: list[dict[str, Any]] = EVERYWHERE) -> Verdict:
    held = Policies(ceiling_of(allowed))
    held.put(network_policy(egress))
    return verdict(held.rules_of("team", LABELS), ip_address(to), port)


def test_without_one_policies_alone_decide() -> None:
    assert ceiling_of(()) is UNLIMITED
    assert judge(to="1.1.1.1").allowed
    assert judge(to="10.0.0.1", port=1).allowed


@pytest.mark.parametrize(
    ("to", "port", "allowed"),
    [
        ("203.0.113.7", 443, True),
        ("203.0.113.7", 8001, True),
        ("203.0.113.7", 80, False),
        ("203.0.114.7", 443, False),
        ("2001:db8::1", 22, True),
        ("2001:db9::1", 22, False),
        ("1.1.1.1", 443, False),
        ("::ffff:203.0.113.7", 443, True),
        ("::ffff:1.1.1.1", 443, False),
    ],
)
def test_a_policy_for_everything_reaches_what_lies_below(to: str, port: int, allowed: bool) -> None:
    found = judge("203.0.113.0/24:443,8000-8999", "2001:db8::/32", to=to, port=port)
    assert found.allowed is allowed
    if not allowed:
        assert found.reason == "Ceiling"
        assert "--allow-egress" in found.message
        assert to not in found.message


@pytest.mark.parametrize(
    "to", ["64:ff9b::a00:1", "2002:a00:1::1", "::10.0.0.1", "2001:0:a00:1::1", "fe80::1", "2606:4700::5efe:a00:1"]
)
def test_an_address_inside_another_must_lie_below_too(to: str) -> None:
    """Each of these carries 10.0.0.1, which is not allowed, in an IPv6 address, all of which are."""
    assert not judge("::/0", "203.0.113.0/24", to=to).allowed


def test_it_opens_nothing_by_itself() -> None:
    found = judge("0.0.0.0/0", to="1.1.1.1", egress=[to_block("10.0.0.0/8")])
    assert (found.allowed, found.reason) == (False, "Policy")
    for to in ("127.0.0.1", "169.254.169.254", "::1"):
        assert judge("0.0.0.0/0", "::/0", "127.0.0.0/8", "169.254.0.0/16", to=to).reason == "Forbidden"


def test_what_providers_share_must_be_meant() -> None:
    assert not judge("0.0.0.0/0", to="100.64.0.1", egress=[to_block("100.64.0.0/10")]).allowed
    assert judge("100.64.0.0/10", to="100.64.0.1", egress=[to_block("100.64.0.0/10")]).allowed


def test_nothing_at_all_and_ports_that_need_no_look_up() -> None:
    assert judge("none", to="1.1.1.1").reason == "Ceiling"
    held = Policies(ceiling_of(["0.0.0.0/0:443"]))
    held.put(network_policy(EVERYWHERE))
    rules = held.rules_of("team", LABELS)
    assert port_verdict(rules, 443).allowed
    assert port_verdict(rules, 80).reason == "Ceiling"


@pytest.mark.parametrize(
    ("egress", "exceeds"),
    [
        (EVERYWHERE, True),
        ([to_block("10.0.0.0/8")], True),
        ([to_block("10.1.2.0/24", ports=[{"port": 443}])], False),
        ([to_block("10.1.2.0/24", ports=[{"port": 80}])], True),
        ([to_block("10.0.0.0/15", ports=[{"port": 443}])], False),
        ([to_block("10.0.0.0/14", ports=[{"port": 443}])], True),
        ([to_block("2001:db8::/64")], False),
        ([], False),
    ],
)
def test_policies_that_ask_for_more_are_named(egress: list[dict[str, Any]], exceeds: bool) -> None:
    held = Policies(ceiling_of(["10.0.0.0/16:443", "10.1.0.0/16:443", "2001:db8::/32"]))
    held.put(network_policy(egress, types=["Egress"]))
    assert held.rules_of("team", LABELS).exceeding() == ("team/out" if exceeds else "")


@pytest.mark.parametrize(
    "text",
    [
        *("", "1.2.3.4", "10.0.0.1/8", "10.0.0.0/33", "example.com/24", "/8", "10.0.0.0/8/9"),
        *(f"10.0.0.0/8:{ports}" for ports in ("", "0", "70000", "9-1", "http", "1-", "+1")),
        "2001:db8::/32:99999",
    ],
)
def test_what_cannot_be_read_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(CeilingError, match=r"203\.0\.113\.0/24"):
        ceiling_of([text])


def test_none_stands_alone() -> None:
    with pytest.raises(CeilingError, match="leave it out"):
        ceiling_of(["none", "10.0.0.0/8"])
