"""One life of the controllers: started, then stopped in order or killed at any await. In some seeds it shares its process with the server."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import partial
from itertools import count
from random import Random
from typing import Any

from sandpool.app.controllers import ControllerOptions, Observability, assemble
from sandpool.controllers.claim.controller import NAME
from sandpool.kube.inline import Addition, Annotate, Refusal
from sandpool.loop.manager import Manager
from sandpool.model.claim import SandboxClaim
from sandpool.simulation.faults import Faults
from sandpool.simulation.faulty_api import FaultyApi
from sandpool.simulation.referee import Referee
from sandpool.simulation.steps import Author, writes_as
from sandpool.simulation.world import World
from sandpool.telemetry.metrics import Metrics
from sandpool.telemetry.reconcile_history import ReconcileHistory


class Leader:
    """One process with all controllers, behind a FaultyApi of its own."""

    def __init__(
        self,
        name: str,
        world: World,
        faults: Faults,
        chance: Random,
        pace: float,
        referee: Referee,
        history: ReconcileHistory,
        metrics: Metrics,
        options: ControllerOptions,
    ) -> None:
        self.name = name
        self.ended = asyncio.Event()
        self.error: BaseException | None = None
        self.history = history
        self.metrics = metrics
        self.api = FaultyApi(
            world, name, faults, chance, pace, self.kill, partial(referee.asked, self), partial(referee.answered, self)
        )
        self.controllers = assemble(
            self.api, world.clock, chance.random, Observability(self.metrics, self.history), options
        )
        self.manager = Manager(self.controllers.parts())
        self._stop = asyncio.Event()
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def _run(self) -> None:
        writes_as(self.name)
        try:
            await self.manager.run(self._stop)
        except asyncio.CancelledError:
            pass  # killed
        except Exception as error:  # as a process that ends with an error and is restarted
            self.error = error
        finally:
            self.api.cut = True
            self.ended.set()

    @property
    def alive(self) -> bool:
        return not self.api.cut

    def kill(self) -> None:
        """As kill -9: from now on nothing that it does reaches the world."""
        self.api.cut = True
        self._task.cancel()

    def stop(self) -> None:
        self._stop.set()


class InlineLeader:
    """The inline hook of a leader's claim controller, with its decisions attributed to that leader."""

    def __init__(self, world: World, leader: Leader, referee: Referee) -> None:
        self._world = world
        self._leader = leader
        self._referee = referee
        self._numbers = count(1)

    def delay(self, namespace: str, body: Mapping[str, Any]) -> float:
        return 0.0  # users of the simulation wait for no answer

    def overflow(self, namespace: str, body: Mapping[str, Any]) -> Refusal | None:
        return None

    def creating(self, claim: SandboxClaim) -> Addition[SandboxClaim] | Annotate | Refusal | None:
        leader = self._leader
        decision = leader.controllers.claim.inline.creating(claim) if leader.alive else None
        if decision is None or isinstance(decision, Annotate | Refusal):
            return decision
        now = self._world.clock.monotonic()
        who = Author(leader.name, NAME, f"inline-{next(self._numbers)}", claim.metadata.key, now)
        for change in decision.changes:
            self._referee.asked(leader, who, "patch", change.resource, change.key.name, change.key.namespace)
        who.saw.claim = claim
        self._world.log.added_by = who
        return decision
