"""One life of the controllers: started, then stopped in order or killed at any await."""

from __future__ import annotations

import asyncio
from functools import partial
from random import Random

from sandpool.app.controllers import ControllerOptions, Telling, assemble
from sandpool.loop.manager import Manager
from sandpool.simulation.authorship import writes_as
from sandpool.simulation.faults import Faults
from sandpool.simulation.line import Line
from sandpool.simulation.referee import Referee
from sandpool.simulation.world import World
from sandpool.telemetry.metrics import Metrics
from sandpool.telemetry.reconcile_history import Story


class Leader:
    def __init__(
        self,
        name: str,
        world: World,
        faults: Faults,
        chance: Random,
        pace: float,
        referee: Referee,
        story: Story,
        metrics: Metrics,
        options: ControllerOptions,
    ) -> None:
        self.name = name
        self.ended = asyncio.Event()
        self.error: BaseException | None = None
        self.story = story
        self.metrics = metrics
        self.line = Line(
            world, name, faults, chance, pace, self.kill, partial(referee.asked, self), partial(referee.answered, self)
        )
        self.controllers = assemble(self.line, world.clock, chance.random, Telling(self.metrics, self.story), options)
        self.manager = Manager(self.controllers.parts())
        self._stop = asyncio.Event()
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def _run(self) -> None:
        writes_as(self.name)
        try:
            await self.manager.run(self._stop)
        except asyncio.CancelledError:
            pass  # killed
        except Exception as error:  # as a process that ends with an error, to be started anew
            self.error = error
        finally:
            self.line.cut = True
            self.ended.set()

    @property
    def alive(self) -> bool:
        return not self.line.cut

    def kill(self) -> None:
        """As kill -9: from this moment on nothing that it does reaches the world."""
        self.line.cut = True
        self._task.cancel()

    def stop(self) -> None:
        self._stop.set()
