"""What a write of a policy costs, and whom."""

from __future__ import annotations

import asyncio

from sandpool.base.turns import BYTES, Turns
from sandpool.node.network.pod import Labels
from sandpool.node.network.policies import Policies
from sandpool.node.network.rechecks import Rechecks
from support.policy_bodies import EVERYWHERE, LABELS, PUBLIC, network_policy


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
    assert policies._versions == {}


async def test_namespaces_are_judged_in_turn_however_many_pods_one_has() -> None:
    rechecks, turns, judged = Rechecks(), Turns(), list[str]()
    rechecks.ask("a", [Pod(f"a{number}", turns, judged) for number in range(1000)])
    await until(judged, "a3")
    rechecks.ask("b", [Pod("b", turns, judged)])
    await until(judged, "b")
    assert len(judged) < 20
    await rechecks.close()
    assert not rechecks._due


async def test_a_flood_of_changes_is_judged_once_for_each_pod_and_never_missed() -> None:
    rechecks, turns, judged = Rechecks(), Turns(), list[str]()
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
    assert not rechecks._due
    assert not rechecks._tasks
