"""A simulated world in which more claims come than can be served, and trouble with them; and the account of how it heals. Counted, in virtual time."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from random import Random
from typing import Any

from sandpool.app.controllers import ControllerOptions
from sandpool.kube.errors import TooManyRequests
from sandpool.model.claim import SandboxClaim
from sandpool.model.conditions import is_true
from sandpool.model.kinds import CLAIMS, POOLS, TEMPLATES
from sandpool.model.metadata import Key
from sandpool.model.patches import merge_patch
from sandpool.model.pod import Pod
from sandpool.model.reasons import Type
from sandpool.model.sandbox import Sandbox
from sandpool.simulation import scenario
from sandpool.simulation.faults import RATES, Fault
from sandpool.simulation.kubelet import Kubelet
from sandpool.simulation.operator import Operator
from sandpool.simulation.run import Run
from sandpool.simulation.steps import Step
from support.clocks.pausing_loop import PausingLoop, run_pausing

POOL, AT_ONCE = 8, 2
HOME, NEIGHBOUR = "red", "blue"
NEWCOMER = "newcomer"
AFTER = 2.0
"""Seconds after the last waiting claim was served, from which on a new one is served as if nothing had been."""
LONGEST = 900.0
"""Virtual seconds in which everybody has been served: none waits for ever."""


class Disk:
    """Of the world. `seconds`: how long a commit takes; what is written meanwhile shares the next one."""

    def __init__(self, log: Any) -> None:
        self.seconds = 0.0
        self._commit = log.commit
        log.commit = self.commit

    def commit(self) -> None:
        if self.seconds:
            asyncio.get_running_loop().call_later(self.seconds, self._commit)
        else:
            self._commit()


@dataclass
class Account:
    """What is known in the end."""

    created: list[Key] = field(default_factory=list)  # claims, the oldest first
    order: list[Key] = field(default_factory=list)  # the same, as they became Ready
    at: dict[Key, float] = field(default_factory=dict)  # when
    by: dict[Key, str] = field(default_factory=dict)  # the sandbox that each got
    waited: int = 0  # how many waited at one time, at most
    newcomer: float = 0.0  # how long one waits that comes when all others have been served
    newcomer_writes: int = 0  # of the claim and its sandbox until then
    newcomer_by: str = ""
    full_after: float = 0.0  # seconds from when the last was served until the pools were full
    in_vain: list[float] = field(default_factory=list)  # when each sandbox went that a claim had started for nothing
    left: Counter[str] = field(default_factory=Counter)  # sandboxes in the end, by what owns them
    pods: int = 0
    in_line: int = -1  # of the assigner and the backlog
    forgotten: bool = False  # whether nothing is kept of claims and pools that are gone
    violations: list[str] = field(default_factory=list)

    def early(self, claims: Iterable[Key], by: float) -> list[Key]:
        """Those of these claims that were served more than so many seconds before an older one of them."""
        found, latest = list[Key](), 0.0  # when the last of the older ones was served
        for key in sorted(claims, key=self.created.index):
            if self.at[key] < latest - by:
                found.append(key)
            latest = max(latest, self.at[key])
        return found

    def own(self, key: Key) -> bool:
        """Whether it was served by a sandbox that it had started for itself."""
        return self.by[key] == key.name

    def of(self, namespace: str = HOME) -> list[Key]:
        return [key for key in self.created if key.namespace == namespace]


class Crowded:
    """Of use while `account` runs."""

    def __init__(self, seed: int, *, inline: bool) -> None:
        self.run = Run(seed)
        self.world, self.found, self.inline = self.run.world, Account(), inline
        self.run.faults.on = False
        self.run.faults.rates = dict.fromkeys(RATES, 0.0)
        self.loop = PausingLoop(self.run.streams.of("order"))
        self.kubelet: Kubelet
        self.operator: Operator
        self.disk: Disk
        self._seed = seed
        self._members: dict[str, int] = {}
        self._expected = 0
        self._written: Counter[str] = Counter()  # by whom
        self._last = 0.0
        self._all_served, self._newcomer_served = asyncio.Event(), asyncio.Event()
        self._pools_full = asyncio.Event()

    # What troubles do

    async def claim(self, number: int, namespace: str = HOME, **spec: Any) -> None:
        """Does not wait for the answer. Whoever is told to come back later does."""
        self._expected += 1
        self._all_served.clear()
        self.world.spawn(self._claim(f"claim-{number}", namespace, spec))

    async def claims(self, count: int, every: float = 0.05, namespace: str = HOME, first: int = 0, **spec: Any) -> None:
        for number in range(first, first + count):
            await self.claim(number, namespace, **spec)
            await asyncio.sleep(every)

    async def pool(self, namespace: str, members: int) -> None:
        """Makes it, or changes its size."""
        body = scenario.template("template-0", Random(self._seed))
        body["spec"] |= {"envVarsInjectionPolicy": "Allowed", "volumeClaimTemplates": [], "service": False}
        spec = {"sandboxTemplateRef": {"name": "template-0"}, "replicas": members}
        if namespace in self._members:
            await self.world.api.patch(POOLS, "pool", merge_patch({"spec": {"replicas": members}}), namespace)
        else:
            await self.world.api.create(TEMPLATES, body, namespace)
            await self.world.api.create(POOLS, {"metadata": {"name": "pool"}, "spec": spec}, namespace)
        self._members[namespace] = members
        self._pools_full.clear()

    def image(self, *, starts: bool) -> None:
        """Whether pods that start now become ready. Those that did not do so when it starts again."""
        self.run.faults.rates[Fault.POD_STUCK] = 1.0
        self.run.faults.on = not starts
        if starts:
            self.world.spawn(self.kubelet.recover())

    async def paused(self, seconds: float) -> None:
        """On one machine the server, the node and the controllers are one process; on Kubernetes only the leader stops."""
        if self.inline:
            self.loop.pause_all(seconds)
            return
        leader = self.operator.current.name
        self.loop.pause(leader, self.disk)
        done = self._written[leader]
        await asyncio.sleep(seconds)
        assert self._written[leader] == done
        self.loop.go_on()

    # How it is told

    def account(self, trouble: Callable[[Crowded], Awaitable[None]], members: int = POOL) -> Account:
        run_pausing(self.loop, self._whole(trouble, members))
        self.found.violations += self.run.referee.violations
        return self.found

    async def _whole(self, trouble: Callable[[Crowded], Awaitable[None]], members: int) -> None:
        world, run, found = self.world, self.run, self.found
        await world.open((HOME, NEIGHBOUR), ("node",), 20_000)
        self.disk = Disk(world.log)
        self.kubelet = Kubelet(world, run.faults, Random(self._seed), ("node",), AT_ONCE)
        self.kubelet.start_time = 1.0
        world.listeners.append(self._heard)
        await self.pool(HOME, members)
        self.operator = operator = Operator(world, run.faults, run.streams, 0.002, run.referee)
        operator.inline, operator.mean_life, operator.options = self.inline, 0.0, ControllerOptions()
        running = world.spawn(operator.run())
        await asyncio.sleep(30)
        await trouble(self)
        async with asyncio.timeout(LONGEST):
            await self._all_served.wait()
        await asyncio.sleep(AFTER - (self.loop.time() - self._last))
        await self._newcomer()
        async with asyncio.timeout(LONGEST):
            await self._pools_full.wait()
        found.full_after = self.loop.time() - self._last
        await asyncio.sleep(30)
        self._count()
        await self._empty()
        world.check()
        running.cancel()
        operator.current.kill()
        await operator.current.ended.wait()
        await world.close()

    async def _claim(self, name: str, namespace: str, spec: dict[str, Any]) -> None:
        body = {"metadata": {"name": name}, "spec": {"warmPoolRef": {"name": "pool"}, **spec}}
        while True:
            try:
                await self.world.api.create(CLAIMS, body, namespace)
                return
            except TooManyRequests as told:
                await asyncio.sleep(told.retry_after or 1)

    async def _newcomer(self) -> None:
        began = self.loop.time()
        await self._claim(NEWCOMER, HOME, {})
        async with asyncio.timeout(LONGEST):
            await self._newcomer_served.wait()
        self.found.newcomer = self.loop.time() - began

    def _count(self) -> None:
        found, made = self.found, self.operator.current.controllers
        for box in self.world.of(Sandbox.kind):
            found.left[box.metadata.controller.kind] += 1
        found.pods = len(self.world.of(Pod.kind))
        in_line = sum(made.assigner.counts(pool.metadata.uid).waiting for pool in made.caches.pools)
        found.in_line = in_line + made.claim.inline.backlog.waiting.used + len(made.assigner.requests)

    async def _empty(self) -> None:
        """All claims and pools go: what is remembered of them goes, too."""
        for claim in self.world.of(SandboxClaim.kind):
            await self.world.api.delete(CLAIMS, claim.metadata.name, claim.metadata.namespace)
        for namespace in self._members:
            await self.world.api.delete(POOLS, "pool", namespace)
        await asyncio.sleep(30)
        made = self.operator.current.controllers
        self.found.forgotten = made.assigner.empty and not len(made.claim.memory) and not self.world.of(Sandbox.kind)

    def _heard(self, step: Step) -> None:
        self._written[step.author.name] += 1
        if _about_newcomer(step.new) and not self._newcomer_served.is_set():
            self.found.newcomer_writes += 1
        if isinstance(step.object, SandboxClaim):
            self._claimed(step)
        elif isinstance(step.object, Sandbox):
            self._changed(step)

    def _claimed(self, step: Step) -> None:
        found, new = self.found, step.new
        if new is None:
            return
        key = new.metadata.key
        if step.old is None and key.name != NEWCOMER:
            found.created.append(key)
            found.waited = max(found.waited, len(found.created) - len(found.order))
        if not is_true(new.status.conditions, Type.READY) or key in found.by:
            return
        if key.name == NEWCOMER:
            found.newcomer_by = new.status.sandbox.name
            self._newcomer_served.set()
            return
        found.order.append(key)
        found.at[key], found.by[key] = step.at, new.status.sandbox.name
        self._last = step.at
        if len(found.order) == self._expected:
            self._all_served.set()
            self._look()

    def _changed(self, step: Step) -> None:
        new, old, meta = step.new, step.old, step.object.metadata
        goes = (new is None or new.metadata.leaving) and (old is None or not old.metadata.leaving)
        if goes and self.found.by.get(meta.key, meta.name) != meta.name:
            self.found.in_vain.append(step.at)
        if self._all_served.is_set():
            self._look()

    def _look(self) -> None:
        """Whether all pools are full."""
        pooled = Counter(
            box.metadata.namespace
            for box in self.world.of(Sandbox.kind)
            if box.metadata.controller.kind == "SandboxWarmPool" and is_true(box.status.conditions, Type.READY)
        )
        if all(pooled[namespace] == members for namespace, members in self._members.items()):
            self._pools_full.set()
        else:
            self._pools_full.clear()


def _about_newcomer(one: Any) -> bool:
    """The claim itself, or what it owns."""
    return one is not None and NEWCOMER in (one.metadata.name, getattr(one.metadata.controller, "name", ""))
