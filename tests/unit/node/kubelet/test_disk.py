"""What the kubelet does about a disk that is nearly full, and about pods that the backend has evicted."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from sandpool.model.codec import convert
from sandpool.model.metadata import Key, Uid
from sandpool.node.backend import ContainerStatus, PodStatus, Started
from sandpool.node.kubelet.node import node_status
from sandpool.node.kubelet.options import KubeletOptions, Pace
from sandpool.node.kubelet.placement import NodeFacts
from sandpool.node.kubelet.plan import Plan, PodView, Publish, Reclaim, Start, plan_pod
from sandpool.node.kubelet.pod_events import PodEvent, status_events
from sandpool.node.kubelet.pods import NODE_PODS, Json, NodePod
from sandpool.node.kubelet.status import running
from support.simulated.kubelet_node import a_pod

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
UID = Uid("u1")
HOST = "127.0.0.1"
WHY = "Pod ephemeral local storage usage exceeds the total limit of containers 10Gi. "
SEEN = PodStatus(UID, Key("default", "p"), "10.0.0.1", containers=(ContainerStatus("main", Started(NOW, ready=True)),))


def pod(status: Json | None = None, restart: str = "Always") -> NodePod:
    body = a_pod(restartPolicy=restart)
    body["metadata"] |= {"uid": UID, "namespace": "default"}
    body["spec"]["nodeName"] = "local"
    body["status"] = {"phase": "Pending"} if status is None else status
    return convert(NODE_PODS, body)


def runs() -> NodePod:
    return pod(running(pod(), SEEN, HOST, Pace(), NOW))


def said(view: PodView) -> Json:
    (step,) = plan_pod(view, Pace(), NOW).steps
    assert isinstance(step, Publish)
    return step.fields


def test_an_evicted_pod_has_failed_whatever_is_left_of_it() -> None:
    for seen in (SEEN, None):
        fields = said(PodView(runs(), seen, host=HOST, evicted=WHY))
        assert (fields["phase"], fields["reason"], fields["message"]) == ("Failed", "Evicted", WHY)
        assert fields["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 137
        assert [news.reason for news in status_events(runs(), fields)] == [PodEvent.EVICTED]


def test_it_is_not_started_again() -> None:
    over = pod({**runs().status, "phase": "Failed", "reason": "Evicted"})
    assert plan_pod(PodView(over, None, evicted=WHY), Pace(), NOW) == Plan()
    (step,) = plan_pod(
        PodView(over, None), Pace(), NOW
    ).steps  # by another process: what is left of it goes, nothing starts
    assert isinstance(step, Reclaim)


def test_under_pressure_a_pod_waits_and_says_so_once() -> None:
    node = NodeFacts("local", {}, pressure="disk pressure: little room")
    view = PodView(pod(), None, node=node, host=HOST)
    plan = plan_pod(view, Pace(), NOW)
    fields = said(view)
    waiting = fields["containerStatuses"][0]["state"]["waiting"]
    assert waiting == {"reason": "DiskPressure", "message": "disk pressure: little room"}
    assert plan.again_at == NOW + timedelta(seconds=Pace().pressure)
    assert [news.reason for news in status_events(pod(), fields)] == [PodEvent.DISK_PRESSURE]
    told = pod({"phase": "Pending", **fields})
    assert plan_pod(PodView(told, None, node=node, host=HOST), Pace(), NOW).steps == ()
    (start,) = plan_pod(PodView(told, None, node=NodeFacts("local", {}), host=HOST), Pace(), NOW).steps
    assert isinstance(start, Start)


def test_the_node_says_it() -> None:
    for pressure, truth in (("", "False"), ("disk full", "True")):
        status = node_status(KubeletOptions(), "namespaces://1", {}, NOW, pressure)
        (condition,) = [one for one in status["conditions"] if one["type"] == "DiskPressure"]
        assert condition["status"] == truth
    assert len(node_status(KubeletOptions(), "namespaces://1", {}, NOW)["conditions"]) == 1
