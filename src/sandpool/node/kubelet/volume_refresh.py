"""Updates the files of ConfigMap, Secret and downward API volumes in running pods when their objects change.

Level-triggered: each round reads the objects that volumes of running pods refer to, for many pods of a namespace at once, and updates what
has changed. Namespaces take turns, and other tasks run in between. A volume that cannot be resolved any more, because its object or a key
is gone, stays as it is.
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
from sandpool.base.offload import Offload
from sandpool.kube.api import Api
from sandpool.kube.errors import ApiError, Unreachable
from sandpool.model.metadata import Uid
from sandpool.node.backend import Backend
from sandpool.node.kubelet.content_budget import ContentBudget, files_size
from sandpool.node.kubelet.contents import Contents
from sandpool.node.kubelet.downward import Fields, NodeInfo
from sandpool.node.kubelet.files import content_specs
from sandpool.node.kubelet.lookup import look_up
from sandpool.node.kubelet.pods import NodePod
from sandpool.node.kubelet.references import NOTHING, Found, Kind, Reference, Unresolved, heavy, shown_references
from sandpool.node.volumes.spec import VolumeSpec
from sandpool.telemetry.log import logger

log = logger(__name__)
TOGETHER = 32
"""Maximum number of objects that are read and held for several pods at once."""
MANY = 128
"""Maximum number of pods that are compared with these objects at once."""


class Refresher:
    def __init__(
        self,
        api: Api,
        backend: Backend,
        pods: Iterable[NodePod],
        node_info: NodeInfo,
        clock: Clock,
        every: float,
        offload: Offload,
        holding: ContentBudget,
    ) -> None:
        self._api = api
        self._backend = backend
        self._pods = pods
        self._node_info = node_info
        self._clock = clock
        self._every = every
        self._offload = offload
        self._content = holding
        self._given: dict[Uid, object] = {}  # what each pod's files were last made from (see `_made_of`)

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
            await asyncio.sleep(0)  # let other tasks run: with small objects and no changes, nothing above really waits

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
            if self._backend.pod_status(pod.metadata.uid) is not None:
                yield pod

    async def _refresh(self, pod: NodePod, contents: Contents) -> None:
        made_of = _made_of(pod, contents.found)
        if self._given.get(pod.metadata.uid) == made_of:
            return
        making = partial(_made, pod, contents, Fields(pod, self._node_info))
        is_heavy = heavy(pod, contents.found)
        specs, size = await self._offload.run(pod.metadata.namespace, making) if is_heavy else making()
        try:
            self._content.change(pod.metadata.uid, size)
            await self._backend.refresh(pod.metadata.uid, specs)
        except NodeError as error:
            log.warning("volumes not brought up to date", pod=str(pod.metadata.key), error=error.message)
            return
        self._given[pod.metadata.uid] = made_of


def _made(pod: NodePod, contents: Contents, fields: Fields) -> tuple[tuple[VolumeSpec, ...], int]:
    specs = content_specs(pod, contents, fields)
    return specs, files_size(specs)


def _batches(pods: Iterable[NodePod]) -> Iterator[tuple[Set[Reference], Sequence[NodePod]]]:
    """Groups pods into batches that share the objects they read. A batch has at most MANY pods and TOGETHER objects, unless a single pod refers
    to more."""
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
    """A value that is equal as long as the pod's files would be the same. It contains no secret."""
    objects: list[Any] = []
    for kind, name in sorted(shown_references(pod.spec)):
        there = (found.config_maps if kind is Kind.CONFIG_MAP else found.secrets).get(name)
        objects.append(None if there is None else (there.metadata.uid, there.metadata.revision))
    return pod.metadata.labels, pod.metadata.annotations, objects
