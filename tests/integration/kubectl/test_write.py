"""Unmodified kubectl writes: create, apply, edit, patch, label, annotate, scale, replace, delete."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from support.api.manifests import ALL, CLAIM, CONFIG_MAP, POD, POOL, SANDBOX
from support.kube.kubectl import Kubectl


def get(kubectl: Kubectl, kind: str, name: str) -> dict[str, Any]:
    return json.loads(kubectl("get", kind, name, "-o", "json"))


def test_apply_creates_changes_and_leaves_alone(kubectl: Kubectl) -> None:
    assert kubectl("apply", "-f", "-", stdin=ALL).count("created") == 6
    assert kubectl("apply", "-f", "-", stdin=ALL).count("unchanged") == 6
    changed = (
        ALL.replace("replicas: 3", "replicas: 5").replace("colour: blue", "colour: red").replace("nginx", "nginx:2")
    )
    said = kubectl("apply", "-f", "-", stdin=changed)
    assert said.count("configured") == 3
    assert said.count("unchanged") == 3
    assert get(kubectl, "swp", "python")["spec"]["replicas"] == 5
    assert get(kubectl, "pod", "lonely")["spec"]["containers"][0]["image"] == "nginx:2"
    gone = changed.replace("  colour: red\n", "  shape: round\n")
    kubectl("apply", "-f", "-", stdin=gone)
    assert get(kubectl, "configmap", "settings")["data"] == {"shape": "round"}  # three-way merge took the key away
    assert "exit" not in kubectl.run("diff", "-f", "-", stdin=gone).err


def test_apply_server_side_is_answered_clearly(kubectl: Kubectl) -> None:
    refused = kubectl.run("apply", "--server-side", "-f", "-", stdin=SANDBOX)
    assert refused.code != 0
    assert "server-side apply is not supported" in refused.err


def test_dry_run_stores_nothing(kubectl: Kubectl) -> None:
    kubectl("create", "--dry-run=server", "-f", "-", stdin=SANDBOX)
    assert kubectl.run("get", "sandbox", "box").code == 1
    kubectl("create", "-f", "-", stdin=SANDBOX)
    kubectl("delete", "sandbox", "box", "--dry-run=server")
    kubectl("label", "sandbox", "box", "a=b", "--dry-run=server")
    assert get(kubectl, "sandbox", "box")["metadata"]["labels"] == {"team": "red"}


def test_create_of_core_kinds_by_generators(kubectl: Kubectl) -> None:
    kubectl("create", "configmap", "made", "--from-literal=a=1")
    kubectl("create", "secret", "generic", "hidden", "--from-literal=password=x")
    kubectl("create", "serviceaccount", "robot")
    kubectl("create", "service", "clusterip", "web", "--tcp=80:8080")
    kubectl("run", "once", "--image=busybox", "--restart=Never")
    assert get(kubectl, "secret", "hidden")["data"] == {"password": "eA=="}
    assert "already exists" in kubectl.run("create", "configmap", "made").err
    assert kubectl("create", "token", "robot").count(".") == 2


def test_patch_in_its_three_dialects(kubectl: Kubectl) -> None:
    kubectl("apply", "-f", "-", stdin=ALL)
    kubectl("patch", "sandbox", "box", "--type=merge", "-p", '{"spec":{"operatingMode":"Suspended"}}')
    kubectl("patch", "sandbox", "box", "--type=json", "-p", '[{"op":"add","path":"/metadata/labels/x","value":"y"}]')
    box = get(kubectl, "sandbox", "box")
    assert box["spec"]["operatingMode"] == "Suspended"
    assert box["metadata"]["labels"] == {"team": "red", "x": "y"}
    assert box["metadata"]["generation"] == 2
    image = '{"spec":{"containers":[{"name":"main","image":"nginx:3"}]}}'
    kubectl("patch", "pod", "lonely", "-p", image)  # strategic: the container is merged by name
    container = get(kubectl, "pod", "lonely")["spec"]["containers"][0]
    assert container["image"] == "nginx:3"
    assert container["ports"][0]["containerPort"] == 80
    refused = kubectl.run("patch", "sandbox", "box", "--type=strategic", "-p", '{"spec":{}}')
    assert refused.code == 1
    assert "application/strategic-merge-patch+json" in refused.err
    failed = kubectl.run("patch", "sandbox", "box", "--type=json", "-p", '[{"op":"test","path":"/kind","value":"x"}]')
    assert failed.code == 1
    assert "the server rejected our request due to an error in our request" in failed.err


def test_label_annotate_and_scale(kubectl: Kubectl) -> None:
    kubectl("apply", "-f", "-", stdin=POOL)
    kubectl("label", "swp", "python", "tier=gold")
    kubectl("annotate", "swp", "python", "note=hello world")
    kubectl("label", "swp", "python", "tier-")
    assert "labels" not in get(kubectl, "swp", "python")["metadata"]
    assert get(kubectl, "swp", "python")["metadata"]["annotations"]["note"] == "hello world"
    assert "scaled" in kubectl("scale", "swp", "python", "--replicas=7")
    assert get(kubectl, "swp", "python")["spec"]["replicas"] == 7
    mismatch = kubectl.run("scale", "swp", "python", "--current-replicas=1", "--replicas=2")
    assert mismatch.code == 1
    assert get(kubectl, "swp", "python")["spec"]["replicas"] == 7


def test_edit(kubectl: Kubectl, tmp_path: Path) -> None:
    kubectl("apply", "-f", "-", stdin=SANDBOX)
    editor = tmp_path / "editor.sh"
    editor.write_text("#!/bin/sh\nsed -i 's/operatingMode: Running/operatingMode: Suspended/' \"$1\"\n")
    editor.chmod(0o755)
    done = kubectl.run("edit", "sandbox", "box", editor=str(editor))
    assert done.code == 0, done.err
    assert get(kubectl, "sandbox", "box")["spec"]["operatingMode"] == "Suspended"


def test_replace_with_a_stale_and_a_fresh_revision(kubectl: Kubectl) -> None:
    kubectl("create", "-f", "-", stdin=SANDBOX)
    stale = get(kubectl, "sandbox", "box")
    kubectl("label", "sandbox", "box", "moved=on")
    stale["spec"]["operatingMode"] = "Suspended"
    refused = kubectl.run("replace", "-f", "-", stdin=json.dumps(stale))
    assert refused.code == 1
    assert "the object has been modified" in refused.err
    fresh = get(kubectl, "sandbox", "box")
    fresh["spec"]["operatingMode"] = "Suspended"
    kubectl("replace", "-f", "-", stdin=json.dumps(fresh))
    assert get(kubectl, "sandbox", "box")["spec"]["operatingMode"] == "Suspended"


OWNED = """
apiVersion: v1
kind: ConfigMap
metadata:
  name: dependent
  ownerReferences:
    - apiVersion: v1
      kind: ConfigMap
      name: settings
      uid: {uid}
      blockOwnerDeletion: true
"""


@pytest.mark.parametrize(("cascade", "survives"), [("background", False), ("foreground", False), ("orphan", True)])
def test_delete_by_cascade(kubectl: Kubectl, cascade: str, survives: bool) -> None:
    kubectl("create", "-f", "-", stdin=CONFIG_MAP)
    uid = kubectl("get", "configmap", "settings", "-o", "jsonpath={.metadata.uid}")
    kubectl("create", "-f", "-", stdin=OWNED.format(uid=uid))
    kubectl("delete", "configmap", "settings", f"--cascade={cascade}", "--timeout=30s")
    assert kubectl.run("get", "configmap", "settings").code == 1
    if survives:
        assert "ownerReferences" not in get(kubectl, "configmap", "dependent")["metadata"]
    else:
        kubectl("wait", "--for=delete", "configmap/dependent", "--timeout=30s")


def test_delete_many_by_selector(kubectl: Kubectl) -> None:
    manifests = "---".join(CLAIM.replace("name: mine", f"name: claim-{number}") for number in range(5))
    kubectl("create", "-f", "-", stdin=manifests)
    kubectl("label", "sandboxclaim", "claim-0", "team=blue", "--overwrite")
    kubectl("delete", "sandboxclaims", "-l", "team=red")
    assert kubectl("get", "sandboxclaims", "-o", "name").split() == ["sandboxclaim.extensions.agents.x-k8s.io/claim-0"]
    kubectl("delete", "sandboxclaims", "--all")
    assert kubectl("get", "sandboxclaims", "-o", "name") == ""
    assert kubectl.run("delete", "sandboxclaim", "claim-0").code == 1
    kubectl("delete", "sandboxclaim", "claim-0", "--ignore-not-found")


def test_deleting_a_namespace_takes_everything_in_it(kubectl: Kubectl) -> None:
    kubectl("apply", "-f", "-", stdin=ALL)
    kubectl("delete", "namespace", kubectl.namespace, "--timeout=40s")
    assert kubectl("get", "sandboxes,pods,swp,sandboxclaims,configmaps", "-o", "name") == ""
    refused = kubectl.run("create", "-f", "-", stdin=CONFIG_MAP)
    assert f'namespaces "{kubectl.namespace}" not found' in refused.err
    kubectl("create", "namespace", kubectl.namespace)
    kubectl("create", "-f", "-", stdin=CONFIG_MAP)  # a new one of the same name starts empty and works


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda m: m["spec"].update(colour="red"), 'unknown field "spec.colour"'),
        (lambda m: m["spec"].update(operatingMode="Flying"), 'Unsupported value: "Flying"'),
        (lambda m: m["spec"].pop("podTemplate"), "spec.podTemplate: Required value"),
        (lambda m: m["spec"].update(shutdownTime="tomorrow"), "spec.shutdownTime"),
        (lambda m: m["metadata"].update(name="Not_A_Name"), "a lowercase RFC 1123 subdomain must consist of"),
        (lambda m: m["metadata"].update(labels={"a b": "c"}), "metadata.labels: Invalid value"),
    ],
)
def test_bad_objects_are_refused_with_the_field(kubectl: Kubectl, change: Any, message: str) -> None:
    manifest = yaml.safe_load(SANDBOX)
    change(manifest)
    refused = kubectl.run("create", "-f", "-", stdin=json.dumps(manifest))
    assert refused.code == 1
    assert message in refused.err
    assert kubectl("get", "sandboxes", "-o", "name") == ""


def test_claim_templates_are_immutable(kubectl: Kubectl) -> None:
    kubectl("create", "-f", "-", stdin=SANDBOX)
    patch = '{"spec":{"volumeClaimTemplates":[{"metadata":{"name":"data"},"spec":{}}]}}'
    refused = kubectl.run("patch", "sandbox", "box", "--type=merge", "-p", patch)
    assert refused.code == 1
    assert "volumeClaimTemplates is immutable" in refused.err


def test_a_pod_without_a_node_leaves_at_once(kubectl: Kubectl) -> None:
    kubectl("create", "-f", "-", stdin=POD)
    kubectl("delete", "pod", "lonely", "--timeout=20s")
    assert kubectl.run("get", "pod", "lonely").code == 1
