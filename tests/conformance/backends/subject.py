"""A backend under test, with everything that it calls back written down."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from sandpool.model.metadata import Key, Uid
from sandpool.node.backend import (
    Backend,
    ContainerSpec,
    ContainerStatus,
    Exit,
    PodStatus,
    Started,
    Workload,
    WorkloadSpec,
)
from sandpool.node.runtimes.fake import EXIT_AFTER, EXIT_CODE

WAIT = 30.0


def a_workload(number: int = 1, command: str = "exec sleep 1000", *, init: bool = False) -> Workload:
    """A pod with one container. The command is for backends that run it; the annotations are for those that pretend."""
    spec = WorkloadSpec(
        containers=(ContainerSpec(name="main", image="host", command=("sh", "-c", command)),),
        init_containers=(ContainerSpec(name="first", image="host", command=("true",)),) if init else (),
    )
    notes = {EXIT_AFTER: "0.5", EXIT_CODE: command.removeprefix("exit ")} if command.startswith("exit ") else {}
    return Workload(Uid(f"00000000-0000-4000-8000-{number:012x}"), Key("default", f"pod-{number}"), spec, notes)


def ready(seen: PodStatus | None) -> bool:
    return seen is not None and all(isinstance(c.state, Started) and c.state.ready for c in seen.containers)


def ended(seen: PodStatus | None) -> bool:
    return seen is not None and all(isinstance(c.state, Exit) for c in seen.containers)


def gone(seen: PodStatus | None) -> bool:
    return seen is None


@dataclass
class Subject:
    make: Callable[[], Backend]
    name: str
    folder: Path
    told: list[tuple[Uid, PodStatus | None]] = field(default_factory=list)
    news: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def virtual(self) -> bool:
        return self.name == "hollow"

    async def a_while(self) -> None:
        """For what must not happen: long in virtual time, long enough in real time to notice a timer that was left."""
        await asyncio.sleep(60 if self.virtual else 0.3)

    async def open(self) -> None:
        self.backend = self.make()
        await self.backend.open(self._changed)

    def _changed(self, uid: Uid) -> None:
        self.told.append((uid, self.backend.pod_status(uid)))
        self.news.set()

    async def until(self, uid: Uid, condition: Callable[[PodStatus | None], bool]) -> PodStatus | None:
        """Waits until the pod is like that, woken only by what the backend calls back."""
        async with asyncio.timeout(WAIT):
            while not condition(self.backend.pod_status(uid)):
                self.news.clear()
                await self.news.wait()
        return self.backend.pod_status(uid)

    async def started(self, workload: Workload) -> PodStatus:
        await self.backend.start_pod(workload)
        seen = await self.until(workload.uid, ready)
        assert seen is not None
        return seen

    def container(self, uid: Uid) -> ContainerStatus:
        seen = self.backend.pod_status(uid)
        assert seen is not None
        return seen.containers[0]
