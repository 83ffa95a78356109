"""One pass of a pool costs the same in large pools: counted in executed operations, not in time."""

from __future__ import annotations

import msgspec
import pytest

from sandpool.controllers.assigner.assigner import Assigner
from sandpool.controllers.assigner.staleness import Staleness
from sandpool.controllers.pool.creation import blank_member, named, owner_reference
from sandpool.controllers.pool.memory import MemberIndex
from sandpool.controllers.pool.observe import Caches, Observer
from sandpool.controllers.pool.options import Options
from sandpool.controllers.pool.plan import look_again_at, plan_pool
from sandpool.controllers.pool.status import status_of, status_patch
from sandpool.loop.cache import Cache
from sandpool.model.kinds import NETWORK_POLICIES, POOLS, SANDBOXES, TEMPLATES
from sandpool.model.metadata import Key, Revision
from sandpool.model.sandbox import Sandbox
from support.api.opcodes import opcodes
from support.simulated.claim_parts import condition
from unit.controllers.pool.views import NOW, a_pool, a_template

PASS_LIMIT = 20
"""Operations by which passes may differ, of some thousands."""


class World:
    """A pool whose members are all in the cache; every fourth is not ready, every fifth stale."""

    def __init__(self, members: int, strategy: str) -> None:
        self.pool = a_pool(members, strategy)
        self.template = a_template(networkPolicyManagement="Unmanaged")
        self.blank = blank_member(self.pool, self.template, "hash")
        caches = Caches(Cache(POOLS), Cache(SANDBOXES), Cache(TEMPLATES), Cache(NETWORK_POLICIES))
        self.sandboxes = caches.sandboxes
        caches.pools.replace([self.pool], Revision(9))
        caches.templates.replace([self.template], Revision(9))
        staleness = Staleness(caches.pools, caches.templates)
        self.member_index = MemberIndex(caches.sandboxes, staleness, Options())
        self.member_index.connect(lambda *_: None)
        self.observer = Observer(caches, self.member_index, Assigner(), staleness)
        caches.sandboxes.replace((self.member(number) for number in range(members)), Revision(members))

    def member(self, number: int) -> Sandbox:
        sandbox = named(self.blank, f"p-{number:08d}")
        meta = msgspec.structs.replace(
            sandbox.metadata, uid=f"u{number:08d}", resource_version=str(number + 1), creation_timestamp=NOW
        )
        status = msgspec.convert({"conditions": [condition(status=str(number % 4 != 0))]}, type(sandbox.status))
        service = True if number % 5 == 0 else None
        spec = msgspec.structs.replace(sandbox.spec, service=service)
        return msgspec.structs.replace(sandbox, metadata=meta, status=status, spec=spec)

    def taken(self, number: int) -> Sandbox:
        old = self.member(number)
        claim = msgspec.structs.replace(owner_reference(self.pool), kind="SandboxClaim", uid="claim")
        meta = msgspec.structs.replace(old.metadata, resource_version="1000000", owner_references=(claim,))
        return msgspec.structs.replace(old, metadata=meta)

    def look(self) -> None:
        view = self.observer.view(self.pool.metadata.key)
        assert view is not None
        plan = plan_pool(view, Options(batch=8), NOW)
        look_again_at(plan, view.roster, NOW)
        status_patch(view.pool, status_of(view, NOW))

    def step(self, number: int) -> None:
        """A member is taken, and the pool looks at itself."""
        self.sandboxes.upsert(self.taken(number))
        self.look()


@pytest.mark.parametrize("strategy", ["OnReplenish", "Recreate"])
def test_a_taken_member_costs_the_same(strategy: str) -> None:
    counts = []
    for size in (100, 10_000):
        world = World(size, strategy)
        world.step(1)  # what is remembered for the first time
        counts.append(opcodes(lambda world=world: world.step(2)))  # type: ignore[misc]
    assert abs(counts[0] - counts[1]) <= PASS_LIMIT, counts


def test_the_ledger_is_right() -> None:
    world = World(1000, "Recreate")
    world.step(7)
    view = world.observer.view(Key("default", "p"))
    assert view is not None
    members = [
        one for one in world.sandboxes if one.metadata.controller and one.metadata.controller.kind == "SandboxWarmPool"
    ]
    assert len(view.roster) == len(members)
    assert view.roster.ready == sum(one.status.conditions[0].true for one in members)
    assert view.roster.stale == sum(one.spec.service is True for one in members)
