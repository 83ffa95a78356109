"""What a write of a policy costs, and whom."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable

import pytest

from sandpool.base.turns import BYTES, Turns
from sandpool.model.core import NetworkPolicy
from sandpool.node.network.egress_rules import ceiling_of
from sandpool.node.network.node_network import PolicyRechecks
from sandpool.node.network.pod import Labels
from sandpool.node.network.policy import Policies
from support.api.policy_bodies import EVERYWHERE, LABELS, PUBLIC, network_policy


class Pod:
    """One whose connections take a turn to be judged."""

    def __init__(self, name: str, turns: Turns, judged: list[str]) -> None:
        self.name = name
        self._turns = turns
        self._judged = judged

    async def recheck(self) -> None:
        await self._turns.take(self.name[0], BYTES)
        self._judged.append(self.name)


async def until(judged: list[str], name: str) -> None:
    async with asyncio.timeout(30):
        while name not in judged:
            await asyncio.sleep(0)


def test_a_write_of_one_namespace_changes_nothing_for_another() -> None:
    policies = Policies()
    policies.put(network_policy(PUBLIC, namespace="team"))
    labels = Labels(policies, "team", LABELS)
    known = labels.rules()
    for number in range(10):
        policies.put(network_policy(EVERYWHERE, namespace="greedy", name=f"p{number}"))
    policies.remove("greedy", "p0")
    assert labels.rules() is known
    policies.put(network_policy(EVERYWHERE, namespace="team"))
    assert labels.rules() is not known


def test_policies_that_come_back_are_not_taken_for_those_that_went() -> None:
    policies = Policies()
    labels = Labels(policies, "team", LABELS)
    for _ in range(3):
        assert not labels.rules().policies
        policies.put(network_policy(PUBLIC, namespace="team"))
        assert labels.rules().policies
        policies.remove("team", "out")
    assert policies.versions == {}


async def test_namespaces_are_judged_in_turn_however_many_pods_one_has() -> None:
    rechecks, turns, judged = PolicyRechecks(), Turns(), list[str]()
    rechecks.ask("a", [Pod(f"a{number}", turns, judged) for number in range(1000)])
    await until(judged, "a3")
    rechecks.ask("b", [Pod("b", turns, judged)])
    await until(judged, "b")
    assert len(judged) < 20
    await rechecks.close()
    assert not rechecks.due


async def test_a_flood_of_changes_is_judged_once_for_each_pod_and_never_missed() -> None:
    rechecks, turns, judged = PolicyRechecks(), Turns(), list[str]()
    pods = [Pod(f"a{number}", turns, judged) for number in range(3)]
    for _ in range(100):
        rechecks.ask("a", pods)
    await until(judged, "a2")
    assert judged == ["a0", "a1", "a2"]
    rechecks.ask("a", [])
    rechecks.ask("a", pods[:1])
    async with asyncio.timeout(30):
        while len(judged) < 4:
            await asyncio.sleep(0)
    assert judged[3:] == ["a0"]
    await asyncio.sleep(0)
    assert not rechecks.due
    assert not rechecks.tasks


def many_terms(number: int, name: str = "out") -> NetworkPolicy:
    """A selector of which all terms hold for any pod."""
    absent = [{"key": f"k{each}", "operator": "DoesNotExist"} for each in range(number)]
    return network_policy(EVERYWHERE, name=name, selector={"matchExpressions": absent})


def calls(work: Callable[[], object], most: int) -> None:
    """Fails if the work calls more than so many Python functions."""
    called = 0

    def step(frame: object, event: str, argument: object) -> None:
        nonlocal called
        called += event == "call"
        if called > most:
            sys.setprofile(None)
            pytest.fail(f"more than {most} calls")

    sys.setprofile(step)
    try:
        work()
    finally:
        sys.setprofile(None)


def test_ports_and_blocks_of_one_policy_are_not_compared_in_pairs_with_the_ceiling() -> None:
    """500 of each made 250,000 comparisons, several seconds, for one write of a few kilobytes."""
    rule = {
        "to": [{"ipBlock": {"cidr": f"10.{each >> 8}.{each & 255}.0/24"}} for each in range(500)],
        "ports": [{"port": 1000 + 2 * each} for each in range(500)],
    }
    policies = Policies(ceiling_of(["10.0.0.0/8", "192.168.0.0/16:1000-3000", "172.16.0.0/12:443"]))
    calls(lambda: policies.put(network_policy([rule])), 100_000)
    assert policies.rules_of("team", LABELS).exceeding() == ""


def test_a_selector_with_too_many_terms_is_not_read() -> None:
    policies = Policies()
    calls(lambda: policies.put(many_terms(20_000)), 1_000)
    found = policies.rules_of("team", LABELS)
    assert [policy.wrong for policy in found.policies] == [
        "its podSelector has 20000 labels and values; at most 1024 are read"
    ]
    assert policies.terms("team") == 1
    policies.put(many_terms(1_000))
    assert policies.rules_of("team", LABELS).policies[0].wrong == ""


async def test_which_of_many_policies_hold_is_found_out_in_several_turns() -> None:
    policies, turns = Policies(), list[int]()
    for number in range(20):
        policies.put(many_terms(500, f"p{number:02}"))
    assert policies.terms("team") == 20 * 501

    async def turn(size: int = BYTES) -> None:
        turns.append(size)
        if len(turns) == 5:  # a change meanwhile
            policies.put(network_policy(PUBLIC, name="z"))

    labels = Labels(policies, "team", LABELS, turn)
    assert labels.last_rules().policies == (), "nothing is compared to tell of it"
    found = await labels.rules_in_turn()
    assert [policy.key.name for policy in found.policies] == [*(f"p{number:02}" for number in range(20)), "z"]
    assert len(turns) == 10 + 10, "two at a time, and then again with the new one"
    assert await labels.rules_in_turn() is found is labels.last_rules()
    assert len(turns) == 20
    for number in range(20):
        policies.remove("team", f"p{number:02}")
    policies.remove("team", "z")
    assert policies.terms("team") == 0
    assert not (await labels.rules_in_turn()).policies
