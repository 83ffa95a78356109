"""Files that pods see of ConfigMaps, Secrets and their own metadata follow when those change.

Level-triggered: each round reads what the volumes of running pods refer to, once for each namespace, and hands on what is not as it was.
A volume that cannot be put together any more, because its object or a key of it is gone, stays as it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from sandpool.base.clock import Clock
from sandpool.base.errors import NodeError
from sandpool.kube.api import Api
from sandpool.kube.errors import ApiError, Unreachable
from sandpool.model.metadata import Uid
from sandpool.node.backend import Backend
from sandpool.node.kubelet.downward import Here
from sandpool.node.kubelet.files import content_specs
from sandpool.node.kubelet.lookup import look_up
from sandpool.node.kubelet.pods import NodePod
from sandpool.node.kubelet.references import NOTHING, Found, Kind, shown_references
from sandpool.telemetry.log import logger

log = logger(__name__)


class Refresher:
    def __init__(
        self, api: Api, backend: Backend, pods: Iterable[NodePod], here: Here, clock: Clock, every: float
    ) -> None:
        self._api = api
        self._backend = backend
        self._pods = pods
        self._here = here
        self._clock = clock
        self._every = every
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
        for namespace, pods in places.items():
            wanted = {reference for pod in pods for reference in shown_references(pod.spec)}
            found = await look_up(self._api, namespace, wanted) if wanted else NOTHING
            for pod in pods:
                await self._refresh(pod, found)

    def _showing(self) -> Iterator[NodePod]:
        for pod in self._pods:
            if not any(volume.shows for volume in pod.spec.volumes) or pod.metadata.leaving or pod.finished:
                continue
            if self._backend.look(pod.metadata.uid) is not None:
                yield pod

    async def _refresh(self, pod: NodePod, found: Found) -> None:
        made_of = _made_of(pod, found)
        if self._given.get(pod.metadata.uid) == made_of:
            return
        try:
            await self._backend.refresh(pod.metadata.uid, content_specs(pod, found, self._here))
        except NodeError as error:
            log.warning("volumes not brought up to date", pod=str(pod.metadata.key), error=error.message)
            return
        self._given[pod.metadata.uid] = made_of


def _made_of(pod: NodePod, found: Found) -> object:
    """Equal as long as the same files come of it. It holds no secret."""
    objects: list[Any] = []
    for kind, name in sorted(shown_references(pod.spec)):
        there = (found.config_maps if kind is Kind.CONFIG_MAP else found.secrets).get(name)
        objects.append(None if there is None else (there.metadata.uid, there.metadata.revision))
    return pod.metadata.labels, pod.metadata.annotations, objects
