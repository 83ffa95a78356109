"""The hollow node, on which most suites run, is a fake: here it is held against a real kubelet, pod by pod."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from node.run import NAME
from support.images.node_image import BOXES
from support.kube.kubectl import Kubectl
from support.kube.process import hollow_node
from support.kube.real_node import Cluster

pytestmark = [pytest.mark.node, pytest.mark.timeout(300)]

PODS: dict[str, Any] = {
    "plain": {"containers": [{"name": "main", "image": BOXES[0]}]},
    "two-containers": {
        "containers": [{"name": "main", "image": BOXES[0]}, {"name": "beside", "image": BOXES[1]}],
    },
    "prepared": {
        "initContainers": [{"name": "before", "image": BOXES[0], "command": ["/bin/echo", "ready"]}],
        "containers": [{"name": "main", "image": BOXES[0]}],
    },
}


@pytest.fixture(scope="module")
def kubectl(cluster: Cluster) -> Iterator[Kubectl]:
    """In a namespace in which nothing of ours acts."""
    kubectl = Kubectl(cluster.server.kubeconfig, cluster.folder, "compared")
    kubectl("create", "namespace", "compared")
    kubectl("wait", "--for=create", "serviceaccount/default", "--timeout=30s")
    yield kubectl
    kubectl("delete", "namespace", "compared", "--wait=false")


def life(kubectl: Kubectl, node: str, name: str, spec: dict[str, Any]) -> list[dict[str, Any]]:
    """What was said of a pod from its creation until it was deleted, each time that something was said."""
    before = json.loads(kubectl("get", "--raw", "/api/v1/namespaces/compared/pods"))["metadata"]["resourceVersion"]
    spec = {"nodeName": node, "automountServiceAccountToken": False, "terminationGracePeriodSeconds": 5, **spec}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}
    kubectl("create", "-f", "-", stdin=json.dumps(pod))
    kubectl("wait", "--for=condition=Ready", f"pod/{name}", "--timeout=60s", timeout=90)
    kubectl("delete", "pod", name)
    history = f"/api/v1/namespaces/compared/pods?watch=1&resourceVersion={before}&timeoutSeconds=1"
    events = [json.loads(line) for line in kubectl("get", "--raw", history).splitlines()]
    assert events[-1]["type"] == "DELETED"
    return [event["object"] for event in events]


def outline(pod: dict[str, Any]) -> str:
    """What a controller can make something of; names, times and addresses differ."""
    status = pod["status"]
    containers = {
        one["name"]: (_state(one["state"]), one["ready"], one["started"], one["restartCount"])
        for one in status.get("containerStatuses", ())
    }
    conditions = [
        (one["type"], one["status"], one.get("reason"), one.get("message")) for one in status.get("conditions", ())
    ]
    known = [field for field in ("startTime", "hostIP", "hostIPs", "podIP", "podIPs") if status.get(field)]
    return json.dumps([status["phase"], conditions, containers, known], sort_keys=True)


def _state(state: dict[str, Any]) -> list[Any]:
    ((kind, told),) = state.items()
    return [kind, told.get("reason"), told.get("exitCode")]


def outlines(pods: Iterable[dict[str, Any]]) -> list[str]:
    """Until it is asked to go, each once."""
    return list(dict.fromkeys(outline(pod) for pod in pods if "deletionTimestamp" not in pod["metadata"]))


@pytest.mark.parametrize("kind", list(PODS))
def test_it_says_nothing_that_a_kubelet_would_not_say(
    cluster: Cluster, kubectl: Kubectl, tmp_path: Path, kind: str
) -> None:
    """A kubelet may say more in between; what the hollow node says, a kubelet says too, in this order."""
    real = outlines(life(kubectl, NAME, f"real-{kind}", PODS[kind]))
    with hollow_node(tmp_path, cluster.server.kubeconfig):
        hollow = outlines(life(kubectl, "hollow", f"hollow-{kind}", PODS[kind]))
    kubectl("delete", "node", "hollow")  # or the scheduler would go on to use it
    rest = iter(real)
    unheard = [said for said in hollow if said not in rest]
    assert not unheard, "\n".join(["only the hollow node says", *unheard, "a kubelet says", *real])
    assert hollow[-1] == real[-1]
    assert len(hollow) > 2


def test_a_kubelet_tells_how_a_stopped_pod_ended(kubectl: Kubectl) -> None:
    """The hollow node does not say this; controllers meet it on every real cluster."""
    last = life(kubectl, NAME, "stopped", PODS["plain"])[-1]
    assert last["status"]["phase"] == "Succeeded"
    assert {one["type"]: one.get("reason") for one in last["status"]["conditions"]}["Ready"] == "PodCompleted"
