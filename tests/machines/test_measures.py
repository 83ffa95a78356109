"""What is counted step by step is what a count from scratch would find, whatever comes in whatever order."""

from __future__ import annotations

from collections import Counter
from typing import Any

import msgspec
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from sandpool.model import labels
from sandpool.model.claim import SandboxClaim
from sandpool.model.conditions import is_true
from sandpool.model.metadata import Uid
from support.simulated.claim_parts import POOL
from support.simulated.measured_world import World, key, owner

MOST = 2
POOLS = st.sampled_from(["p", "q", "r"])
CLAIMS = st.sampled_from(["a", "b", "c"])
BOXES = st.sampled_from(["s", "t", "u", "v"])
TEMPLATES = st.sampled_from(["x", "y", "z"])


class MeasuresMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.world = World(most=MOST)
        self.generation = 0

    def _uid(self, name: str, fresh: bool) -> str:
        self.generation += fresh
        return f"{name}-{self.generation}"

    @rule(name=POOLS, template=TEMPLATES, replicas=st.integers(0, 3), fresh=st.booleans())
    def pool(self, name: str, template: str, replicas: int, fresh: bool) -> None:
        known = self.world.pools.get(key(name))
        uid = known.metadata.uid if known is not None and not fresh else self._uid(name, True)
        self.world.pool(name, template=template, replicas=replicas, uid=uid)

    @rule(name=POOLS)
    def drop_pool(self, name: str) -> None:
        if (pool := self.world.pools.get(key(name))) is not None:
            self.world.drop(self.world.pools, pool)

    @rule(name=CLAIMS, pool=POOLS)
    def claim(self, name: str, pool: str) -> None:
        if self.world.claims.get(key(name)) is None:
            self.world.claim(name, pool=pool)

    @rule(name=CLAIMS, box=BOXES, ready=st.booleans())
    def bind(self, name: str, box: str, ready: bool) -> None:
        if (claim := self.world.claims.get(key(name))) is not None:
            self.world.bound(claim, box, ready=ready)

    @rule(name=CLAIMS, pool=POOLS)
    def recreate_claim(self, name: str, pool: str) -> None:
        """Another claim of that name, seen without the end of the one before."""
        claim = self.world.claims.get(key(name))
        if claim is not None:
            meta = msgspec.structs.replace(claim.metadata, uid=Uid(self._uid(name, True)))
            self.world.put(self.world.claims, SandboxClaim(metadata=meta, spec=claim.spec))

    @rule(name=CLAIMS)
    def drop_claim(self, name: str) -> None:
        if (claim := self.world.claims.get(key(name))) is not None:
            self.world.drop(self.world.claims, claim)

    @rule(
        name=BOXES,
        ready=st.sampled_from([None, True, False]),
        claim=CLAIMS | st.none(),
        launch=st.sampled_from(["warm", "cold", "odd"]),
        template=TEMPLATES,
    )
    def sandbox(self, name: str, ready: bool | None, claim: str | None, launch: str, template: str) -> None:
        held = self.world.claims.get(key(claim)) if claim else None
        owners: list[dict[str, Any]] = [owner(held)] if held is not None else [POOL]
        marks = {labels.LAUNCH_TYPE: launch}
        notes = {labels.TEMPLATE_REF: template}
        self.world.sandbox(name, ready=ready, owners=owners, labels=marks, annotations=notes)

    @rule(name=BOXES)
    def drop_sandbox(self, name: str) -> None:
        if (box := self.world.sandboxes.get(key(name))) is not None:
            self.world.drop(self.world.sandboxes, box)

    @rule(seconds=st.floats(0, 10))
    def wait(self, seconds: float) -> None:
        self.world.clock.advance(seconds)

    @invariant()
    def the_census_is_right(self) -> None:
        ready = Counter("true" if is_true(box.status.conditions, "Ready") else "false" for box in self.world.sandboxes)
        shown: Counter[str] = Counter()
        for metric in self.world.metrics.registry.collect():
            if metric.name == "agent_sandboxes":
                for sample in metric.samples:
                    shown[sample.labels["ready_condition"]] += int(sample.value)
        assert shown == ready

    @invariant()
    def what_is_held_is_right(self) -> None:
        pools = {pool.metadata.name for pool in self.world.pools}
        held = Counter(c.spec.warm_pool_ref.name for c in self.world.claims if c.status.sandbox is not None)
        shown = sum(
            int(sample.value)
            for metric in self.world.metrics.registry.collect()
            if metric.name == "sandpool_pool_claimed"
            for sample in metric.samples
        )
        assert shown == sum(count for name, count in held.items() if name in pools)

    @invariant()
    def names_are_few_and_of_what_exists(self) -> None:
        scrape = list(self.world.metrics.registry.collect())
        samples = [sample for metric in scrape for sample in metric.samples]
        pools = {
            sample.labels[label] for sample in samples for label in ("pool", "warmpool_name") if label in sample.labels
        }
        templates = {sample.labels["sandbox_template"] for sample in samples if "sandbox_template" in sample.labels}
        special = {"__other__", "__unknown__", "unknown"}
        assert pools - special <= {pool.metadata.name for pool in self.world.pools}
        assert templates - special <= {pool.spec.sandbox_template_ref.name for pool in self.world.pools}
        assert len(pools - special) <= MOST
        assert len(templates - special) <= MOST

    @invariant()
    def nothing_is_timed_that_is_not_there(self) -> None:
        waiting = sum(
            not is_true(one.status.conditions, "Ready") for one in (*self.world.claims, *self.world.sandboxes)
        )
        assert self.world.measures.timed <= waiting


MeasuresMachine.TestCase.settings = settings(max_examples=25, stateful_step_count=30)
TestMeasures = MeasuresMachine.TestCase
