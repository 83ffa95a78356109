"""Several backends as one: each pod runs on the one that its runtimeClassName names, and on no other.

A class that is unknown, or that does not work on this machine, is refused; there is never a weaker one in its place. Which ones work is
found out by trying them, when the backends are opened or when somebody asks what there is.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from datetime import datetime

from sandpool.base.errors import NodeError
from sandpool.model.metadata import Uid
from sandpool.node.backend import (
    Backend,
    BackendError,
    Changed,
    Command,
    Exit,
    Probe,
    Running,
    Stats,
    Streams,
    UnknownPod,
    Workload,
)
from sandpool.node.volumes.spec import VolumeSpec
from sandpool.telemetry.log import logger

log = logger(__name__)


class ChosenBackend:
    def __init__(self, backends: Collection[Backend], default: str) -> None:
        self._backends = {backend.name: backend for backend in backends}
        if default not in self._backends:
            raise ValueError(f"the default backend {default!r} is not one of {', '.join(self._backends)}")
        self._default = default
        self._offers: dict[str, Probe] = {}
        self._open: dict[str, Backend] = {}

    @property
    def name(self) -> str:
        return self._default

    @property
    def revives(self) -> bool:
        return all(backend.revives for backend in self._backends.values())

    async def probe(self) -> Probe:
        """Of the default one."""
        self._offers[self._default] = probe = await _tried(self._backends[self._default])
        return probe

    async def offers(self) -> Mapping[str, Probe]:
        """How each of them did, by name. Each is tried once, because that takes a good part of a start."""
        await self._find_out()
        return dict(self._offers)

    async def open(self, changed: Changed) -> None:
        await self._find_out()
        for name, backend in self._backends.items():
            if not self._offers[name].available:
                log.info("backend not available", backend=name, reason=self._offers[name].message)
                continue
            try:
                await backend.open(changed)
            except NodeError as error:
                self._offers[name] = Probe(False, error.reason, error.message)
                log.warning("backend not opened", backend=name, error=error.message)
                continue
            self._open[name] = backend

    async def close(self) -> None:
        opened, self._open = self._open, {}
        await asyncio.gather(*(backend.close() for backend in opened.values()))

    def look(self, uid: Uid) -> Running | None:
        for backend in self._open.values():
            seen = backend.look(uid)
            if seen is not None:
                return seen
        return None

    def running(self) -> Collection[Running]:
        return [seen for backend in self._open.values() for seen in backend.running()]

    async def start(self, workload: Workload) -> None:
        if self.look(workload.uid) is None:
            await self._named(workload).start(workload)

    async def restart(self, uid: Uid, container: str) -> None:
        await self._of(uid).restart(uid, container)

    async def end(self, uid: Uid, container: str, grace: float) -> None:
        await self._of(uid).end(uid, container, grace)

    async def reclaim(self, workload: Workload) -> None:
        if self.look(workload.uid) is not None:
            await self._of(workload.uid).reclaim(workload)
            return
        backend = self._open.get(workload.spec.runtime_class_name or self._default)
        if backend is not None:  # what one that does not work left of it is out of reach
            await backend.reclaim(workload)

    async def stop(self, uid: Uid, grace: float) -> None:
        if self.look(uid) is not None:
            await self._of(uid).stop(uid, grace)

    async def pause(self, uid: Uid) -> None:
        await self._of(uid).pause(uid)

    async def resume(self, uid: Uid) -> None:
        await self._of(uid).resume(uid)

    async def exec(self, uid: Uid, container: str, command: Command, streams: Streams) -> Exit:
        return await self._of(uid).exec(uid, container, command, streams)

    async def attach(self, uid: Uid, container: str, streams: Streams) -> Exit:
        return await self._of(uid).attach(uid, container, streams)

    async def dial(self, uid: Uid, port: int) -> socket.socket:
        return await self._of(uid).dial(uid, port)

    async def connect(self, uid: Uid, container: str) -> socket.socket:
        return await self._of(uid).connect(uid, container)

    def relabel(self, uid: Uid, labels: Mapping[str, str]) -> None:
        if self.look(uid) is not None:
            self._of(uid).relabel(uid, labels)

    async def refresh(self, uid: Uid, volumes: Sequence[VolumeSpec]) -> None:
        if self.look(uid) is not None:
            await self._of(uid).refresh(uid, volumes)

    async def logs(
        self,
        uid: Uid,
        container: str,
        *,
        previous: bool = False,
        follow: bool = False,
        tail: int | None = None,
        since: datetime | None = None,
        timestamps: bool = False,
        limit: int | None = None,
    ) -> AsyncIterator[bytes]:
        text = self._of(uid).logs(
            uid,
            container,
            previous=previous,
            follow=follow,
            tail=tail,
            since=since,
            timestamps=timestamps,
            limit=limit,
        )
        async for some in text:
            yield some

    async def stats(self, uid: Uid) -> Stats:
        return await self._of(uid).stats(uid)

    def _of(self, uid: Uid) -> Backend:
        for backend in self._open.values():
            if backend.look(uid) is not None:
                return backend
        raise UnknownPod(uid)

    async def _find_out(self) -> None:
        missing = [name for name in self._backends if name not in self._offers]
        found = await asyncio.gather(*(_tried(self._backends[name]) for name in missing))
        self._offers.update(zip(missing, found, strict=True))

    def _named(self, workload: Workload) -> Backend:
        name = workload.spec.runtime_class_name or self._default
        backend = self._open.get(name)
        if backend is None:
            raise BackendError("RuntimeClassUnavailable", _why_not(name, self._offers.get(name), self._open))
        return backend


async def _tried(backend: Backend) -> Probe:
    try:
        return await backend.probe()
    except NodeError as error:
        return Probe(False, error.reason, error.message)


def _why_not(name: str, probe: Probe | None, there: Collection[str]) -> str:
    why = "there is no such backend" if probe is None else f"it does not work here: {probe.message or probe.reason}"
    choice = f"available are: {', '.join(sorted(there))}" if there else "no backend is available on this machine"
    return f"runtimeClassName {name!r}: {why}; {choice}"
