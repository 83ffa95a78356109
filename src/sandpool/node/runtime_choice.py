"""Several backends behind one: each pod runs on the backend that its runtimeClassName names, and on no other.

A class that is unknown or does not work on this machine is refused; a weaker one never takes its place. Which backends work is found by
probing them, when they are opened or when `offers` is called.

It implements the whole `Backend` contract and forwards each call to the backend that has the pod. The alternative, a chooser that callers
ask for a pod's backend first, would put that step, and the case that no backend has the pod, into every caller: the kubelet, its prober,
hooks, volume refresh and usage sampling, the API server's streams and the router. As it is, all of them take one `Backend`, and tests and
simulation give them a single one without a chooser.
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
    PodStatus,
    Probe,
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
        """Probes the default backend."""
        self._offers[self._default] = probe = await _probe(self._backends[self._default])
        return probe

    async def offers(self) -> Mapping[str, Probe]:
        """The probe of each backend, by name. Each is probed once, because probing takes a large part of a start."""
        await self._probe_all()
        return dict(self._offers)

    async def open(self, changed: Changed) -> None:
        await self._probe_all()
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

    def pod_status(self, uid: Uid) -> PodStatus | None:
        for backend in self._open.values():
            seen = backend.pod_status(uid)
            if seen is not None:
                return seen
        return None

    def list_pods(self) -> Collection[PodStatus]:
        return [seen for backend in self._open.values() for seen in backend.list_pods()]

    async def start_pod(self, workload: Workload) -> None:
        if self.pod_status(workload.uid) is None:
            await self._backend_for(workload).start_pod(workload)

    async def restart_container(self, uid: Uid, container: str) -> None:
        await self._backend_of(uid).restart_container(uid, container)

    async def stop_container(self, uid: Uid, container: str, grace: float) -> None:
        await self._backend_of(uid).stop_container(uid, container, grace)

    async def reclaim(self, workload: Workload) -> None:
        if self.pod_status(workload.uid) is not None:
            await self._backend_of(workload.uid).reclaim(workload)
            return
        backend = self._open.get(workload.spec.runtime_class_name or self._default)
        if backend is not None:  # if its backend does not work, there is nothing that could be reclaimed
            await backend.reclaim(workload)

    async def stop_pod(self, uid: Uid, grace: float) -> None:
        if self.pod_status(uid) is not None:
            await self._backend_of(uid).stop_pod(uid, grace)

    async def pause(self, uid: Uid) -> None:
        await self._backend_of(uid).pause(uid)

    async def resume(self, uid: Uid) -> None:
        await self._backend_of(uid).resume(uid)

    async def exec(self, uid: Uid, container: str, command: Command, streams: Streams) -> Exit:
        return await self._backend_of(uid).exec(uid, container, command, streams)

    async def attach(self, uid: Uid, container: str, streams: Streams) -> Exit:
        return await self._backend_of(uid).attach(uid, container, streams)

    async def dial(self, uid: Uid, port: int) -> socket.socket:
        return await self._backend_of(uid).dial(uid, port)

    async def connect(self, uid: Uid, container: str) -> socket.socket:
        return await self._backend_of(uid).connect(uid, container)

    def relabel(self, uid: Uid, labels: Mapping[str, str]) -> None:
        if self.pod_status(uid) is not None:
            self._backend_of(uid).relabel(uid, labels)

    async def refresh(self, uid: Uid, volumes: Sequence[VolumeSpec]) -> None:
        if self.pod_status(uid) is not None:
            await self._backend_of(uid).refresh(uid, volumes)

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
        text = self._backend_of(uid).logs(
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
        return await self._backend_of(uid).stats(uid)

    def _backend_of(self, uid: Uid) -> Backend:
        for backend in self._open.values():
            if backend.pod_status(uid) is not None:
                return backend
        raise UnknownPod(uid)

    async def _probe_all(self) -> None:
        missing = [name for name in self._backends if name not in self._offers]
        found = await asyncio.gather(*(_probe(self._backends[name]) for name in missing))
        self._offers.update(zip(missing, found, strict=True))

    def _backend_for(self, workload: Workload) -> Backend:
        name = workload.spec.runtime_class_name or self._default
        backend = self._open.get(name)
        if backend is None:
            raise BackendError("RuntimeClassUnavailable", _refusal(name, self._offers.get(name), self._open))
        return backend


async def _probe(backend: Backend) -> Probe:
    try:
        return await backend.probe()
    except NodeError as error:
        return Probe(False, error.reason, error.message)


def _refusal(name: str, probe: Probe | None, there: Collection[str]) -> str:
    why = (
        "there is no such backend on this node"
        if probe is None
        else f"it does not work here: {probe.message or probe.reason}"
    )
    choice = f"available are: {', '.join(sorted(there))}" if there else "no backend is available on this machine"
    return f"runtimeClassName {name!r}: {why}; {choice}"
