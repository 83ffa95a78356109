"""Files that pods see of ConfigMaps, Secrets and their own metadata follow when those change.

Level-triggered: each round reads what the volumes of running pods refer to, many pods of a namespace at once, and hands on what is not as it was.
Namespaces take turns, and the event loop has its own in between, also if nothing has changed anywhere.
A volume that cannot be put together any more, because its object or a key of it is gone, stays as it is.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable, Iterator, Sequence, Set
from functools import partial
from itertools import islice
from typing import Any

from sandpool.base.clock import Clock
from sandpool.base.errors import NodeError
from sandpool.kube.api import Api
from sandpool.kube.errors import ApiError, Unreachable
from sandpool.loop.aside import Aside
from sandpool.model.metadata import Uid
from sandpool.node.backend import Backend
from sandpool.node.kubelet.contents import Contents
from sandpool.node.kubelet.downward import Fields, Here
from sandpool.node.kubelet.files import content_specs
from sandpool.node.kubelet.holding import Holding, files_size
from sandpool.node.kubelet.lookup import look_up
from sandpool.node.kubelet.pods import NodePod
from sandpool.node.kubelet.references import NOTHING, Found, Kind, Reference, Unresolved, shown_references
from sandpool.node.kubelet.weight import heavy
from sandpool.node.volumes.spec import VolumeSpec
from sandpool.telemetry.log import logger

log = logger(__name__)
TOGETHER = 32
"""Objects that are read and held for several pods at once."""
MANY = 128
"""Pods that are compared at once with what was read."""


class Refresher:
    def __init__(
        self,
        api: Api,
        backend: Backend,
        pods: Iterable[NodePod],
        here: Here,
        clock: Clock,
        every: float,
        aside: Aside,
        holding: Holding,
    ) -> None:
        self._api = api
        self._backend = backend
        self._pods = pods
        self._here = here
        self._clock = clock
        self._every = every
        self._aside = aside
        self._holding = holding
        self._given: dict[Uid, object] = {}  # what the files of each pod were last made of

    async def run(self) -> None:
        while True:
            await self._clock.sleep(self._every)
            try:
                await self.round()
            except (ApiError, Unreachable) as error:
                log.warning("volumes not brought up to date", error=f"{type(error).__name__}: {error}")

    async def round(self) -> None:
        places: dict[str, list[NodePod]] = {}
        for pod in self._showing():
            places.setdefault(pod.metadata.namespace, []).append(pod)
        there = {pod.metadata.uid for pods in places.values() for pod in pods}
        self._given = {uid: given for uid, given in self._given.items() if uid in there}
        waiting = deque((namespace, _batches(pods)) for namespace, pods in places.items())
        while waiting:
            namespace, batches = waiting.popleft()
            for wanted, some in islice(batches, 1):
                await self._together(namespace, wanted, some)
                waiting.append((namespace, batches))
            await asyncio.sleep(0)  # nothing else is waited for where small objects are read and nothing has changed

    async def _together(self, namespace: str, wanted: Set[Reference], pods: Sequence[NodePod]) -> None:
        try:
            contents = Contents(await look_up(self._api, namespace, wanted) if wanted else NOTHING)
        except Unresolved as error:
            log.warning("volumes not brought up to date", pod=str(pods[0].metadata.key), error=error.message)
            return
        for pod in pods:
            await self._refresh(pod, contents)

    def _showing(self) -> Iterator[NodePod]:
        for pod in self._pods:
            if not any(volume.shows for volume in pod.spec.volumes) or pod.metadata.leaving or pod.finished:
                continue
            if self._backend.look(pod.metadata.uid) is not None:
                yield pod

    async def _refresh(self, pod: NodePod, contents: Contents) -> None:
        made_of = _made_of(pod, contents.found)
        if self._given.get(pod.metadata.uid) == made_of:
            return
        making = partial(_made, pod, contents, Fields(pod, self._here))
        is_heavy = heavy(pod, contents.found)
        specs, size = await self._aside.run(pod.metadata.namespace, making) if is_heavy else making()
        try:
            self._holding.change(pod.metadata.uid, size)
            await self._backend.refresh(pod.metadata.uid, specs)
        except NodeError as error:
            log.warning("volumes not brought up to date", pod=str(pod.metadata.key), error=error.message)
            return
        self._given[pod.metadata.uid] = made_of


def _made(pod: NodePod, contents: Contents, fields: Fields) -> tuple[tuple[VolumeSpec, ...], int]:
    specs = content_specs(pod, contents, fields)
    return specs, files_size(specs)


def _batches(pods: Iterable[NodePod]) -> Iterator[tuple[Set[Reference], Sequence[NodePod]]]:
    """Pods that refer to the same share what is read; and no more is held at a time than TOGETHER objects, or those of one pod, for
    MANY pods."""
    wanted: Set[Reference] = frozenset()
    some: list[NodePod] = []
    for pod in pods:
        more = shown_references(pod.spec)
        if some and (len(wanted | more) > TOGETHER or len(some) >= MANY):
            yield wanted, some
            wanted, some = frozenset(), []
        wanted |= more
        some.append(pod)
    if some:
        yield wanted, some


def _made_of(pod: NodePod, found: Found) -> object:
    """Equal as long as the same files come of it. It holds no secret."""
    objects: list[Any] = []
    for kind, name in sorted(shown_references(pod.spec)):
        there = (found.config_maps if kind is Kind.CONFIG_MAP else found.secrets).get(name)
        objects.append(None if there is None else (there.metadata.uid, there.metadata.revision))
    return pod.metadata.labels, pod.metadata.annotations, objects
