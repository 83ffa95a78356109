"""Pools and claims on a real `sandpool up`, driven and watched with unmodified kubectl."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sandpool.model.conditions import is_true
from sandpool.model.kinds import SANDBOXES
from sandpool.model.sandbox import Sandbox
from support.api.manifests import CLAIM, POOL, SANDBOX, TEMPLATE
from support.kube.kubectl import Kubectl
from support.product.cluster import Cluster, sandpool
from support.product.cluster_watch import became

WAIT = "--timeout=45s"


@pytest.fixture(scope="module")
def backend() -> str:
    return "hollow"


def get(kubectl: Kubectl, *what: str) -> dict[str, Any]:
    answer: dict[str, Any] = json.loads(kubectl("get", *what, "-o", "json"))
    return answer


def names(kubectl: Kubectl, kind: str) -> set[str]:
    return {item["metadata"]["name"] for item in get(kubectl, kind)["items"]}


def table(text: str) -> list[list[str]]:
    return [line.split() for line in text.splitlines()]


def wait(kubectl: Kubectl, what: str, *objects: str) -> None:
    kubectl("wait", f"--for={what}", *objects, WAIT)


def a_full_pool(kubectl: Kubectl, pool: str = POOL) -> None:
    kubectl("apply", "-f", "-", stdin=f"{TEMPLATE}---{pool}")
    wait(kubectl, "condition=Ready", "sandboxwarmpool/python")


def test_a_pool_fills(kubectl: Kubectl) -> None:
    a_full_pool(kubectl)
    pools = table(kubectl("get", "sandboxwarmpool"))
    assert pools[0] == ["NAME", "READY", "DESIRED", "AGE"]
    assert pools[1][:3] == ["python", "3", "3"]
    wide = table(kubectl("get", "swp", "-o", "wide"))
    assert wide[0] == ["NAME", "READY", "DESIRED", "AGE", "CURRENT", "UPDATED", "TEMPLATE"]
    assert wide[1][4:] == ["3", "3", "python"]
    boxes = table(kubectl("get", "sandbox"))
    assert boxes[0] == ["NAME", "READY", "REASON", "AGE"]
    assert [box[1:3] for box in boxes[1:]] == [["True", "DependenciesReady"]] * 3
    pods = table(kubectl("get", "pod"))
    assert [pod[1:3] for pod in pods[1:]] == [["1/1", "Running"]] * 3
    assert {pod[0] for pod in pods[1:]} == {box[0] for box in boxes[1:]}


def all_ready(boxes: dict[str, Sandbox], count: int) -> bool:
    return len(boxes) == count and all(is_true(box.status.conditions, "Ready") for box in boxes.values())


def image(box: Sandbox) -> str:
    spec: dict[str, Any] = json.loads(bytes(box.spec.pod_template.spec))
    return str(spec["containers"][0]["image"])


def test_a_claim_takes_a_member_and_the_pool_refills(cluster: Cluster, kubectl: Kubectl) -> None:
    a_full_pool(kubectl)
    members = names(kubectl, "sandboxes")
    kubectl("apply", "-f", "-", stdin=CLAIM)
    wait(kubectl, "condition=Ready", "sandboxclaim/mine")
    claims = table(kubectl("get", "sandboxclaim"))
    assert claims[0] == ["NAME", "READY", "SANDBOX", "REASON", "AGE"]
    assert claims[1][:2] == ["mine", "True"]
    taken = claims[1][2]
    assert taken in members, "a warm one, not a new one"
    box, claim = get(kubectl, "sandbox", taken), get(kubectl, "sandboxclaim", "mine")
    assert [owner["uid"] for owner in box["metadata"]["ownerReferences"]] == [claim["metadata"]["uid"]]
    assert claim["status"]["sandbox"]["podIPs"] == [get(kubectl, "pod", taken)["status"]["podIP"]]
    now = set(became(cluster.data_dir, SANDBOXES, lambda boxes: all_ready(boxes, 4), kubectl.namespace))
    assert members < now
    kubectl("delete", "sandboxclaim", "mine")
    wait(kubectl, "delete", f"sandbox/{taken}", f"pod/{taken}")
    assert names(kubectl, "sandboxes") == now - {taken}


def test_scale(kubectl: Kubectl) -> None:
    a_full_pool(kubectl)
    assert "scaled" in kubectl("scale", "sandboxwarmpool", "python", "--replicas=5")
    wait(kubectl, "jsonpath={.status.readyReplicas}=5", "sandboxwarmpool/python")
    many = names(kubectl, "sandboxes")
    assert len(many) == 5
    kubectl("scale", "sandboxwarmpool/python", "--replicas=1")
    wait(kubectl, "jsonpath={.status.replicas}=1", "sandboxwarmpool/python")
    scale = get(kubectl, "sandboxwarmpool", "python", "--subresource=scale")
    assert (scale["spec"]["replicas"], scale["status"]["replicas"]) == (1, 1)
    selected = kubectl("get", "sandboxes", "-l", scale["status"]["selector"], "-o", "name").split()
    (left,) = {name.partition("/")[2] for name in selected} & many
    wait(kubectl, "delete", *(f"pod/{name}" for name in many - {left}))
    assert names(kubectl, "pods") == {left}


@pytest.mark.parametrize("strategy", ["Recreate", "RollingUpdate"])
def test_a_patched_template_rolls_through_the_pool(cluster: Cluster, kubectl: Kubectl, strategy: str) -> None:
    a_full_pool(kubectl, f"{POOL}  updateStrategy:\n    type: {strategy}\n")
    kubectl("apply", "-f", "-", stdin=CLAIM)
    wait(kubectl, "condition=Ready", "sandboxclaim/mine")
    taken = get(kubectl, "sandboxclaim", "mine")["status"]["sandbox"]["name"]
    became(cluster.data_dir, SANDBOXES, lambda boxes: all_ready(boxes, 4), kubectl.namespace)
    path = "/spec/podTemplate/spec/containers/0/image"
    patch = json.dumps([{"op": "replace", "path": path, "value": "python:3.14"}])
    kubectl("patch", "sandboxtemplate", "python", "--type=json", "-p", patch)
    rolled = became(
        cluster.data_dir,
        SANDBOXES,
        lambda boxes: all_ready(boxes, 4) and sum(image(box) == "python:3.14" for box in boxes.values()) == 3,
        kubectl.namespace,
    )
    assert image(rolled[taken]) == "python:3.13", "a claimed sandbox is never touched by a rollout"
    wait(kubectl, "jsonpath={.status.updatedReadyReplicas}=3", "sandboxwarmpool/python")


def test_a_claim_without_a_pool_says_so_and_is_served_when_it_comes(kubectl: Kubectl) -> None:
    kubectl("apply", "-f", "-", stdin=CLAIM)
    wait(kubectl, "condition=Ready=False", "sandboxclaim/mine")
    assert "WarmPoolNotFound" in table(kubectl("get", "sandboxclaim", "mine"))[1]
    kubectl("apply", "-f", "-", stdin=f"{TEMPLATE}---{POOL}")
    wait(kubectl, "condition=Ready", "sandboxclaim/mine")


def test_a_sandbox_of_its_own_is_suspended_and_resumed(kubectl: Kubectl) -> None:
    kubectl("apply", "-f", "-", stdin=SANDBOX)
    wait(kubectl, "condition=Ready", "sandbox/box")
    first = get(kubectl, "pod", "box")["metadata"]["uid"]
    kubectl("patch", "sandbox", "box", "--type=merge", "-p", '{"spec":{"operatingMode":"Suspended"}}')
    wait(kubectl, "condition=Suspended", "sandbox/box")
    assert names(kubectl, "pods") == set()
    kubectl("patch", "sandbox", "box", "--type=merge", "-p", '{"spec":{"operatingMode":"Running"}}')
    wait(kubectl, "condition=Ready", "sandbox/box")
    assert get(kubectl, "pod", "box")["metadata"]["uid"] != first


def test_what_happened_is_told(kubectl: Kubectl) -> None:
    a_full_pool(kubectl)
    kubectl("apply", "-f", "-", stdin=CLAIM)
    wait(kubectl, "condition=Ready", "sandboxclaim/mine")
    described = kubectl("describe", "sandboxclaim", "mine")
    assert "sandpool" in described.partition("Events:")[2]
    refused = kubectl.run("logs", get(kubectl, "sandboxclaim", "mine")["status"]["sandbox"]["name"])
    assert refused.code != 0
    assert "the backend hollow starts no process" in refused.err


def test_a_team_claims_with_credentials_of_its_namespace(cluster: Cluster, kubectl: Kubectl, tmp_path: Path) -> None:
    a_full_pool(kubectl)
    config = tmp_path / "kubeconfig"
    config.write_text(sandpool("token", "--namespace", kubectl.namespace, *cluster.flag).stdout)
    team = Kubectl(config, kubectl.home, kubectl.namespace)
    team("apply", "-f", "-", stdin=CLAIM)
    wait(team, "condition=Ready", "sandboxclaim/mine")
    team("delete", "sandboxclaim", "mine")


def test_a_namespace_goes_with_everything_in_it(kubectl: Kubectl) -> None:
    a_full_pool(kubectl)
    kubectl("apply", "-f", "-", stdin=CLAIM)
    wait(kubectl, "condition=Ready", "sandboxclaim/mine")
    kubectl("delete", "namespace", kubectl.namespace, WAIT)
    for kind in ("sandboxclaims", "sandboxwarmpools", "sandboxes", "pods", "networkpolicies", "services"):
        assert names(kubectl, kind) == set()
