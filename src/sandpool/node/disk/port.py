"""What the guard of the disk asks of the pods of this machine."""

from __future__ import annotations

from typing import Protocol

from sandpool.model.metadata import Uid
from sandpool.node.disk.measured import Limits, Used


class Occupant(Protocol):
    """A pod that may fill the disk. All methods raise NodeError and nothing else."""

    @property
    def uid(self) -> Uid: ...

    @property
    def limits(self) -> Limits: ...

    @property
    def began_empty(self) -> bool:
        """Nothing was there when it started; one that runs again may have files from before."""
        ...

    @property
    def over(self) -> bool:
        """It has ended for good, and only its logs are left."""
        ...

    async def measure(self, *, thorough: bool) -> Used:
        """Looks at its files. `thorough`: at those of persistent volumes, too."""
        ...

    async def freeze(self) -> None:
        """Stops all its processes for a moment. May be repeated."""
        ...

    async def thaw(self) -> None:
        """The opposite, on the same terms."""
        ...

    def evict(self, message: str) -> None:
        """Ends it at once and takes its files away; its status will say why."""
        ...
