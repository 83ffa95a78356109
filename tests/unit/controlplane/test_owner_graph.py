"""Random owners, random deletions, transfers and restarts: nothing leaks, and nothing with a living owner is taken."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass, field
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sandpool.controlplane.garbage_collection import GarbageCollector
from sandpool.controlplane.objects.keys import key_of
from sandpool.controlplane.owner_graph import node_of
from sandpool.kube.api import Propagation
from sandpool.kube.errors import NotFound
from sandpool.model import kinds
from support.api.local_objects import Bench, bench, config_map
from support.api.local_parts import quiet, running
from support.clocks.manual_clock import ManualClock


@dataclass
class World:
    """What the test asked for, by name."""

    b: Bench
    random: Random
    uids: dict[str, str] = field(default_factory=dict)
    owners: dict[str, set[str]] = field(default_factory=dict)  # as last written by us
    deleted: set[str] = field(default_factory=set)
    orphans: set[str] = field(default_factory=set)  # whose only owner was alive, and then told to let go of them

    def references(self, names: set[str]) -> list[dict[str, object]]:
        return [
            {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "name": name,
                "uid": self.uids[name],
                "blockOwnerDeletion": self.random.random() < 0.5,
            }
            for name in sorted(names)
        ]

    def some_owners(self) -> set[str]:
        known = sorted(self.uids)
        return set(self.random.sample(known, min(len(known), self.random.choice([0, 1, 1, 1, 2, 3]))))

    async def create(self) -> None:
        name = f"c{len(self.uids)}"
        owners = self.some_owners()
        made = await self.b.create(kinds.CONFIG_MAPS, config_map(name, ownerReferences=self.references(owners)))
        self.uids[name], self.owners[name] = made["metadata"]["uid"], owners

    async def delete(self) -> None:
        name = self.random.choice(sorted(self.uids))
        how = self.random.choice(list(Propagation))
        first = not self.leaving(name)
        with contextlib.suppress(NotFound):
            await self.b.delete(kinds.CONFIG_MAPS, name, propagation=how)
            self.deleted.add(name)
            dependents = {child for child, owners in self.owners.items() if owners == {name}}
            if how is not Propagation.ORPHAN:
                self.orphans -= dependents  # somebody changed his mind about them
            elif first:  # else its dependents may be leaving already, and leaving is final
                self.orphans |= {child for child in dependents if child not in self.deleted and self.alive(child)}

    async def transfer(self) -> None:
        name = self.random.choice(sorted(self.uids))
        owners = self.some_owners() - {name}
        with contextlib.suppress(NotFound):
            patch = {"metadata": {"ownerReferences": self.references(owners)}}
            patched = await self.b.patch(kinds.CONFIG_MAPS, name, patch)
            if "deletionTimestamp" in patched["metadata"]:
                return  # too late: leaving is final
            self.owners[name] = owners
            self.orphans.discard(name)

    def alive(self, name: str) -> bool:
        return not self.b.absent(kinds.CONFIG_MAPS, name)

    def leaving(self, name: str) -> bool:
        """As a write that is made now would find it, which is newer than what is published."""
        newest = self.b.store.newest(key_of(kinds.CONFIG_MAPS, "default", name))
        return newest is not None and node_of(newest).leaving

    def check(self) -> None:
        alive = set(filter(self.alive, self.uids))
        living = {self.uids[name] for name in alive}
        for name in alive:
            metadata = self.b.get(kinds.CONFIG_MAPS, name)["metadata"]
            assert "deletionTimestamp" not in metadata, f"{name} is stuck"
            references = metadata.get("ownerReferences") or []
            assert all(reference["uid"] in living for reference in references), f"{name} has a dead owner"
        for name in set(self.uids) - alive - self.deleted:
            assert self.owners[name], f"{name} had no owner and was taken"
            assert not self.owners[name] & alive, f"{name} had a living owner and was taken"
        for name in self.orphans - self.deleted:
            assert name in alive, f"{name} was orphaned and taken"


async def live(seed: int, steps: int) -> None:
    random = Random(seed)
    async with bench() as b:
        world = World(b, random)
        for _ in range(3):
            await world.create()
        left = steps
        while left > 0:
            async with running(GarbageCollector(b.store, b.objects, ManualClock())):
                for _ in range(random.randrange(1, steps)):
                    step = random.choice([world.create, world.create, world.delete, world.transfer])
                    await step()
                    for _ in range(random.choice([0, 0, 1, 3, 20])):
                        await asyncio.sleep(0)
                    left -= 1
            if left > 0:  # and some things happen while it is down
                await world.delete()
                await world.create()
        async with running(GarbageCollector(b.store, b.objects, ManualClock())):
            await quiet(b.store)
        world.check()


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.integers(0, 10_000))
async def test_small_worlds(seed: int) -> None:
    await live(seed, 25)


@pytest.mark.long
@settings(max_examples=500, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.integers(0, 1_000_000), st.integers(20, 150))
async def test_large_worlds(seed: int, steps: int) -> None:
    await live(seed, steps)
