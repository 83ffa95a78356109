"""What the backends ask of the volumes.

A volume is a folder or a file of this machine; mounting it into a sandbox is the backend's. All methods raise NodeError and
nothing else, may be repeated, and may be cancelled: what was begun is then finished or undone in the background.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

from sandpool.node.volumes.spec import Volume, VolumeSpec


class Volumes(Protocol):
    async def make(self, uid: str, specs: Sequence[VolumeSpec], *, group: int | None = None) -> Mapping[str, Volume]:
        """The volumes of the pod `uid`, by name. What is there from an earlier run of the same pod is kept, except that
        content is brought up to date. `group` is the pod's fsGroup, as the pod numbers it: what we make belongs to it
        where we may give it away. If it raises it may be tried again; `remove` takes away what is there by then."""
        ...

    async def refresh(self, uid: str, specs: Sequence[VolumeSpec]) -> None:
        """Swaps the files of the content volumes among `specs` for new ones, for each volume at once. What is mounted in
        a running sandbox shows them. Volumes of other kinds, and pods without volumes here, are passed over."""
        ...

    async def remove(self, uid: str) -> None:
        """Everything of the pod, but not its claims: they are kept. Nothing may be mounted in a sandbox any more."""
        ...

    async def remove_claim(self, uid: str) -> None:
        """The folder of a claim whose object is gone. Its pods must be gone, too."""
        ...

    async def reap(self, pods: Collection[str], claims: Collection[str] | None = None) -> None:
        """Once, at the start: removes what belongs to no pod of `pods` and, if they are given, to no claim of `claims`. It is out of
        sight when this returns, and gone some time later."""
        ...

    async def close(self) -> None:
        """The last call, when nothing is mounted in a sandbox any more. Waits for what still runs; folders on disk stay."""
        ...
