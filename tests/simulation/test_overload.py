"""More claims than can be served, for a while and without any other fault: who is served when, by what, and what is left. Counted, in virtual time."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from random import Random
from typing import Any

import pytest

from sandpool.app.controllers import ControllerOptions
from sandpool.model.claim import SandboxClaim
from sandpool.model.conditions import is_true
from sandpool.model.kinds import CLAIMS, POOLS, TEMPLATES
from sandpool.model.pod import Pod
from sandpool.model.reasons import Type
from sandpool.model.sandbox import Sandbox
from sandpool.simulation import scenario
from sandpool.simulation.kubelet import Kubelet
from sandpool.simulation.operator import Operator
from sandpool.simulation.run import Run, caught_by
from sandpool.simulation.seeded_loop import run_seeded
from sandpool.simulation.steps import Step

CLAIMED, POOL = 60, 8
NEWCOMER = "newcomer"


@dataclass
class Served:
    order: list[str] = field(default_factory=list)  # claims, as they became Ready
    by: dict[str, str] = field(default_factory=dict)  # the sandbox that each got
    violations: list[str] = field(default_factory=list)
    left: list[str] = field(default_factory=list)  # sandboxes in the end
    last: float = 0.0  # when the last was served
    full: float = 0.0  # when the pool was full again
    newcomer: float = 0.0  # how long one waits that comes after all

    @property
    def warm(self) -> int:
        return sum(name != box for name, box in self.by.items())


def overload(
    seed: int, inline: bool, *, members: int = POOL, at_once: int = 2, every: float = 0.05, trouble: str = ""
) -> Served:
    """Claims come `every` so many seconds, of a pool whose members start `at_once`, each within a second. `trouble`: what comes in the middle."""
    run, served, newcomer = Run(seed), Served(), list[float]()
    run.faults.on = False

    async def whole() -> None:
        world, streams = run.world, run.streams
        await world.open(("red",), ("node",), 20_000)
        kubelet = Kubelet(world, run.faults, Random(seed), ("node",), at_once)
        kubelet.start_time = 1.0
        world.listeners.append(heard)
        await world.api.create(TEMPLATES, scenario.template("template-0", Random(seed)), "red")
        spec = {"sandboxTemplateRef": {"name": "template-0"}, "replicas": members}
        await world.api.create(POOLS, {"metadata": {"name": "pool"}, "spec": spec}, "red")
        operator = Operator(world, run.faults, streams, 0.002, run.referee)
        operator.inline, operator.mean_life, operator.options = inline, 0.0, ControllerOptions()
        running = world.spawn(operator.run())
        await asyncio.sleep(30)
        for number in range(CLAIMED):
            body = {"metadata": {"name": f"claim-{number}"}, "spec": {"warmPoolRef": {"name": "pool"}}}
            await world.api.create(CLAIMS, body, "red")
            await asyncio.sleep(every)
            if number == CLAIMED // 2 and trouble == "the controllers die":
                operator.current.kill()
            elif number == CLAIMED // 2 and trouble == "starts take long for a while":
                kubelet.start_time = 20.0
        await asyncio.sleep(15)
        kubelet.start_time = 1.0
        await asyncio.sleep(200)
        world.check()
        began = asyncio.get_running_loop().time()
        await world.api.create(
            CLAIMS, {"metadata": {"name": NEWCOMER}, "spec": {"warmPoolRef": {"name": "pool"}}}, "red"
        )
        await asyncio.sleep(20)
        served.newcomer = newcomer[0] - began
        served.left += [box.metadata.name for box in world.of(Sandbox.kind)]
        assert len(world.of(Pod.kind)) == len(served.left)
        running.cancel()
        operator.current.kill()
        await operator.current.ended.wait()
        await world.close()

    def heard(step: Step) -> None:
        new: Any = step.new
        ready = isinstance(new, SandboxClaim) and is_true(new.status.conditions, Type.READY)
        if ready and new.metadata.name == NEWCOMER:
            newcomer.append(step.at)
        elif ready and new.metadata.name not in served.by:
            served.order.append(new.metadata.name)
            served.by[new.metadata.name] = new.status.sandbox.name
            served.last = step.at
        if len(served.by) == CLAIMED and not served.full:
            pooled = [
                box for box in run.world.of(Sandbox.kind) if (box.metadata.controller or new.metadata).name == "pool"
            ]
            if sum(is_true(box.status.conditions, Type.READY) for box in pooled) == members:
                served.full = step.at

    run_seeded(whole(), run.streams.of("order"))
    served.violations += run.referee.violations
    return served


def inversions(order: list[str]) -> int:
    """How many were served while an older one waited."""
    numbers = [int(name.rpartition("-")[2]) for name in order]
    return sum(any(later < number for later in numbers[at + 1 :]) for at, number in enumerate(numbers))


def overtaken(order: list[str]) -> int:
    """By how many places the most impatient one was served too early."""
    return max(int(name.rpartition("-")[2]) - at for at, name in enumerate(order))


@pytest.mark.parametrize("inline", [True, False], ids=["on one machine", "on Kubernetes"])
def test_past_capacity_claims_are_served_in_order_and_warm(inline: bool) -> None:
    served = overload(1, inline)
    assert served.violations == []
    assert len(served.by) == CLAIMED
    assert served.warm >= 0.95 * CLAIMED
    assert inversions(served.order) <= 2, "at most those for whom it was tried whether a cold start is sooner"
    assert len(served.left) == CLAIMED + 1 + POOL, "what was started in vain is gone, and the pool is full"
    assert served.full - served.last < 10, "it is full soon after the last was served"


@pytest.mark.parametrize("inline", [True, False], ids=["on one machine", "on Kubernetes"])
@pytest.mark.parametrize("trouble", ["", "the controllers die", "starts take long for a while"])
def test_it_heals(trouble: str, inline: bool) -> None:
    """In virtual time, which passes only where somebody waits for something."""
    served = overload(2, inline, trouble=trouble)
    assert served.violations == []
    assert len(served.by) == CLAIMED
    if trouble == "the controllers die":
        assert overtaken(served.order) <= POOL, "whoever follows serves at once as many as there are members"
    else:
        assert inversions(served.order) <= 2
    assert len(served.left) == CLAIMED + 1 + POOL
    assert served.newcomer <= 0.05, "as if nothing had been"


def test_where_starts_do_not_get_in_each_others_way_a_pool_that_is_too_small_is_not_waited_for() -> None:
    served = overload(1, inline=True, members=1, at_once=1_000)
    assert served.violations == []
    assert len(served.by) == CLAIMED
    assert served.warm < CLAIMED / 2
    assert len(served.left) == CLAIMED + 2


@pytest.mark.parametrize(
    "mutation", ["oldest-first", "cold-is-not-final", "refill-share", "nobody-waits-in-vain", "end-of-waits"]
)
def test_what_keeps_the_order_is_missed_when_it_is_gone(mutation: str) -> None:
    assert caught_by(mutation, range(20)) is not None
