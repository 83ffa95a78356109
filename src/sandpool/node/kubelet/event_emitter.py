"""Makes Events of what happens to pods. What is worth one is decided in news.py."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from sandpool.base.errors import NodeError
from sandpool.loop.events import Events, Kind
from sandpool.model.metadata import Uid
from sandpool.node.backend import Running
from sandpool.node.kubelet.options import Pace
from sandpool.node.kubelet.pod_events import News, PodEvent, probe_news, published_news, started_news, trouble_news
from sandpool.node.kubelet.pods import NODE_PODS, Json, NodePod
from sandpool.node.kubelet.probe_runner import Answer, Asked
from sandpool.node.kubelet.probe_state import Which
from sandpool.node.kubelet.status import scheduled


class Telling:
    """`pod_of` finds a pod that is known; nothing is told about others. `routine`: whether that is told, too."""

    def __init__(self, events: Events, pod_of: Callable[[Uid], NodePod | None], pace: Pace, *, routine: bool) -> None:
        self._events = events
        self._pod_of = pod_of
        self._pace = pace
        self._routine = routine

    def moved(self, pod: NodePod, before: Running | None, after: Running | None) -> None:
        self._tell(pod, started_news(pod, before, after, self._pace))

    def published(self, pod: NodePod, fields: Json) -> None:
        self._tell(pod, published_news(pod, fields))

    def placed(self, pod: NodePod, node: str) -> None:
        """It is about to be started for the first time. A pod that asked for this very node was not placed by anybody."""
        if self._routine and not pod.acknowledged and scheduled(pod):
            text = f"Successfully assigned {pod.metadata.key} to {node}"
            self._tell(pod, [News(Kind.NORMAL, PodEvent.SCHEDULED, text, routine=True)])

    def stumbled(self, pod: NodePod, error: NodeError) -> None:
        self._tell(pod, [trouble_news(error.reason, error.message)])

    def doubted(self, pod: NodePod, text: str) -> None:
        self._tell(pod, [News(Kind.WARNING, PodEvent.PULL_SECRET, text)])

    def probed(self, asked: Asked, which: Which, answer: Answer, doomed: bool) -> None:
        pod = self._pod_of(asked.uid)
        if pod is not None:
            self._tell(pod, probe_news(asked.container.name, which, answer, doomed))

    def hook_failed(self, asked: Asked, answer: Answer) -> None:
        pod = self._pod_of(asked.uid)
        if pod is not None:
            text = f"PreStopHook of container {asked.container.name} failed: {answer.text}"
            self._tell(pod, [News(Kind.WARNING, PodEvent.FAILED_PRE_STOP, text)])

    def _tell(self, pod: NodePod, news: Iterable[News]) -> None:
        for kind, reason, message, routine in news:
            if self._routine or not routine:
                self._events.emit(NODE_PODS, pod, kind, reason, message)
