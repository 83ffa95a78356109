"""A leader that shares its process with the server: it serves claims in the write that creates them, as long as it lives.

What it decides is put down to it, with what it knew in that moment; the claim itself is its user's.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import count
from typing import TYPE_CHECKING

from sandpool.controllers.claim.controller import NAME
from sandpool.kube.outright import Busy, Grant
from sandpool.model.claim import SandboxClaim
from sandpool.model.kinds import SANDBOXES
from sandpool.model.metadata import Key
from sandpool.simulation.authorship import Author
from sandpool.simulation.referee import Referee
from sandpool.simulation.world import World

if TYPE_CHECKING:
    from sandpool.simulation.leader import Leader


class Granting:
    def __init__(self, world: World, leader: Leader, referee: Referee) -> None:
        self._world = world
        self._leader = leader
        self._referee = referee
        self._numbers = count(1)

    def pause(self, pool: Key) -> float:
        return 0.0  # users of the simulation wait for no answer

    def no_pause(self, pool: Key) -> Busy | None:
        return None

    def busy(self, claim: SandboxClaim) -> Busy | None:
        leader = self._leader
        return leader.controllers.claim.outright.busy(claim) if leader.alive else None

    def noted(self, claim: SandboxClaim) -> Mapping[str, str]:
        leader = self._leader
        return leader.controllers.claim.outright.noted(claim) if leader.alive else {}

    def grant(self, claim: SandboxClaim) -> Grant | None:
        leader = self._leader
        grant = leader.controllers.claim.outright.grant(claim) if leader.alive else None
        if grant is not None:
            now = self._world.clock.monotonic()
            who = Author(leader.name, NAME, f"outright-{next(self._numbers)}", claim.metadata.key, now)
            self._referee.asked(leader, who, "patch", SANDBOXES, grant.sandbox.name, grant.sandbox.namespace)
            who.saw.claim = claim
            self._world.log.granted_by = who
        return grant
