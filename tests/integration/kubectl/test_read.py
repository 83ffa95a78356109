"""Unmodified kubectl reads: get in all its forms, describe, explain, api-resources, events, wait."""

from __future__ import annotations

import json

import pytest
import yaml

from support.api.manifests import ALL, CLAIM, POD, POOL, SANDBOX, TEMPLATE
from support.kube.kubectl import Kubectl

READY = {
    "status": {
        "conditions": [
            {
                "type": "Ready",
                "status": "True",
                "reason": "DependenciesReady",
                "message": "the pod is ready",
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            }
        ]
    }
}


def test_api_resources_and_versions(kubectl: Kubectl) -> None:
    kinds = {line.split()[-1]: line for line in kubectl("api-resources", "--no-headers").splitlines()}
    assert {"Sandbox", "SandboxTemplate", "SandboxWarmPool", "SandboxClaim", "Pod", "Service", "Event"} <= kinds.keys()
    assert {"Namespace", "ConfigMap", "Secret", "ServiceAccount", "Node", "Lease", "NetworkPolicy"} <= kinds.keys()
    assert {"PersistentVolumeClaim", "RuntimeClass"} <= kinds.keys()
    assert " swp " in kinds["SandboxWarmPool"]
    assert "extensions.agents.x-k8s.io/v1beta1" in kubectl("api-versions").split()
    assert "Server Version" in kubectl("version")


def test_get_tables(kubectl: Kubectl) -> None:
    kubectl("apply", "-f", "-", stdin=ALL)
    pools = kubectl("get", "swp").splitlines()
    assert pools[0].split() == ["NAME", "READY", "DESIRED", "AGE"]
    assert pools[1].split()[0] == "python"
    assert pools[1].split()[-2] == "3"
    assert kubectl("get", "sandboxclaims").splitlines()[0].split() == ["NAME", "READY", "SANDBOX", "REASON", "AGE"]
    assert kubectl("get", "sandboxes").splitlines()[0].split() == ["NAME", "READY", "REASON", "AGE"]
    assert kubectl("get", "pods").splitlines()[0].split() == ["NAME", "READY", "STATUS", "RESTARTS", "AGE"]
    assert "NODE" in kubectl("get", "pods", "-o", "wide").splitlines()[0]
    assert kubectl("get", "pods").splitlines()[1].split()[:3] == ["lonely", "0/1", "Pending"]
    assert kubectl("get", "configmap,pod", "-o", "name").split() == ["configmap/settings", "pod/lonely"]


def test_get_yaml_json_selectors_and_all_namespaces(kubectl: Kubectl) -> None:
    kubectl("apply", "-f", "-", stdin=ALL)
    box = yaml.safe_load(kubectl("get", "sandbox", "box", "-o", "yaml"))
    assert box["spec"]["operatingMode"] == "Running"  # a default of the schema
    assert box["metadata"]["generation"] == 1
    listed = json.loads(kubectl("get", "sandboxes", "-o", "json"))
    assert [item["metadata"]["name"] for item in listed["items"]] == ["box"]
    assert kubectl("get", "sandboxes", "-l", "team=red", "-o", "name").split() == ["sandbox.agents.x-k8s.io/box"]
    assert kubectl("get", "sandboxes", "-l", "team notin (red)", "-o", "name") == ""
    assert "lonely" in kubectl("get", "pods", "--field-selector", "metadata.name=lonely,status.phase=Pending")
    assert kubectl("get", "pods", "--field-selector", "status.phase=Running", "-o", "name") == ""
    assert any(
        line.split()[:2] == [kubectl.namespace, "box"] for line in kubectl("get", "sandboxes", "-A").splitlines()
    )
    refused = kubectl.run("get", "sandboxes", "--field-selector", "spec.colour=red")
    assert refused.code == 1
    assert "field label not supported: spec.colour" in refused.err


def test_get_watch_shows_each_change(kubectl: Kubectl) -> None:
    kubectl("apply", "-f", "-", stdin=SANDBOX)
    with kubectl.start("get", "sandboxes", "-w", "-o", "jsonpath={.metadata.labels.step}{'\\n'}") as watching:
        assert watching.stdout is not None
        try:
            watching.stdout.readline()
            for step in ("one", "two"):
                kubectl("label", "sandbox", "box", f"step={step}", "--overwrite")
                assert watching.stdout.readline().strip() == step
        finally:
            watching.terminate()


def test_describe_shows_the_object_and_its_events(kubectl: Kubectl) -> None:
    kubectl("apply", "-f", "-", stdin=SANDBOX + "---" + POD)
    uid = kubectl("get", "sandbox", "box", "-o", "jsonpath={.metadata.uid}")
    event = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": "box.1", "namespace": kubectl.namespace},
        "involvedObject": {
            "apiVersion": "agents.x-k8s.io/v1beta1", "kind": "Sandbox", "name": "box",
            "namespace": kubectl.namespace, "uid": uid,
        },
        "reason": "Tested", "message": "an event to be seen", "type": "Normal",
        "firstTimestamp": "2026-01-01T00:00:00Z", "lastTimestamp": "2026-01-01T00:00:00Z", "count": 1,
        "source": {"component": "test"},
    }  # fmt: skip
    kubectl("create", "-f", "-", stdin=json.dumps(event))
    assert "an event to be seen" in kubectl("describe", "sandbox", "box")
    assert "an event to be seen" in kubectl("events", "--for", "sandbox/box")
    assert "Tested" in kubectl("get", "events")
    assert "nginx" in kubectl("describe", "pod", "lonely")


def test_explain_tells_fields_of_ours_and_of_core_kinds(kubectl: Kubectl) -> None:
    spec = kubectl("explain", "sandbox.spec")
    assert "operatingMode" in spec
    assert "shutdownTime" in spec
    assert "warmPoolRef" in kubectl("explain", "sandboxclaim.spec")
    assert "maxUnavailable" in kubectl("explain", "swp.spec.updateStrategy", "--recursive")
    assert "restartPolicy" in kubectl("explain", "pod.spec")
    assert "image" in kubectl("explain", "sandbox.spec.podTemplate.spec.containers")


def test_wait_for_a_condition(kubectl: Kubectl) -> None:
    kubectl("apply", "-f", "-", stdin=SANDBOX)
    late = kubectl.run("wait", "sandbox/box", "--for=condition=Ready", "--timeout=1s")
    assert late.code == 1
    with kubectl.start("wait", "sandbox/box", "--for=condition=Ready", "--timeout=30s") as waiting:
        kubectl("patch", "sandbox", "box", "--subresource=status", "--type=merge", "-p", json.dumps(READY))
        assert waiting.wait(40) == 0
        assert waiting.stdout is not None
        assert "condition met" in waiting.stdout.read()
    assert kubectl("get", "sandbox", "box").splitlines()[1].split()[:3] == ["box", "True", "DependenciesReady"]


def test_who_am_i_and_what_may_i(kubectl: Kubectl) -> None:
    assert "admin" in kubectl("auth", "whoami")
    assert kubectl("auth", "can-i", "create", "sandboxclaims").strip() == "yes"
    assert "*" in kubectl("auth", "can-i", "--list")


@pytest.mark.parametrize("kind", ["deployments", "ingresses.networking.k8s.io", "nonsense"])
def test_kinds_that_are_not_served_are_named(kubectl: Kubectl, kind: str) -> None:
    refused = kubectl.run("get", kind)
    assert refused.code == 1
    assert f"the server doesn't have a resource type \"{kind.partition('.')[0]}" in refused.err


def test_paging_is_invisible(kubectl: Kubectl) -> None:
    manifests = "---".join(CLAIM.replace("name: mine", f"name: claim-{number:03}") for number in range(60))
    kubectl("create", "-f", "-", stdin=manifests)
    names = kubectl("get", "sandboxclaims", "--chunk-size=7", "-o", "name").split()
    assert len(names) == 60
    assert names == sorted(names)


def test_templates_and_pools_can_be_applied_in_any_order(kubectl: Kubectl) -> None:
    kubectl("apply", "-f", "-", stdin=POOL + "---" + TEMPLATE)
    assert "python" in kubectl("get", "sandboxtemplates")
