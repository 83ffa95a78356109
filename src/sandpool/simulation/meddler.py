"""Somebody who edits at the worst moment: while a call that has failed is about to be made again.

By chance alone it would be rare that what a decision rests on changes between two tries, and that the leader hears of it in time.
"""

from __future__ import annotations

import asyncio
from random import Random

from sandpool.kube.errors import ApiError
from sandpool.model.kinds import TEMPLATES
from sandpool.model.metadata import Key
from sandpool.simulation import bodies
from sandpool.simulation.authorship import USER, Author, writes_as
from sandpool.simulation.faults import Fault, Faults
from sandpool.simulation.world import World

FAILED = (Fault.CONFLICT, Fault.INTERNAL, Fault.UNAVAILABLE, Fault.TIMEOUT)
"""What a call is made again after, because it had no effect."""


class Meddler:
    def __init__(self, world: World, faults: Faults, chance: Random) -> None:
        self._world = world
        self._faults = faults
        self._chance = chance
        faults.struck = self._heard

    def _heard(self, fault: Fault, whom: Author) -> None:
        """Where a claim was to get a member of a pool, and did not, the pool's template may change now."""
        pool = whom.saw.pool
        if fault in FAILED and whom.controller == "claim" and pool is not None and self._chance.random() < 0.5:
            self._world.spawn(self._edit(pool.template_key))

    async def _edit(self, template: Key) -> None:
        writes_as(USER)
        await asyncio.sleep(self._chance.choice((0.0, 0.0, 0.01, 0.1)))
        try:
            await self._world.api.patch(
                TEMPLATES, template.name, bodies.another_image(self._chance), template.namespace
            )
        except ApiError:
            return
        self._faults.happened("template edited during a transfer")
