"""A tenant that asks, by its pods and policies, for weaker walls than the operator gave: on real sandboxes, by kubectl."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from integration.kubectl.test_access import bound
from support.kube.kubectl import Kubectl, kubectl_path
from support.product.cluster import Cluster, running_cluster

INSIDE = "203.0.113.0/24:443"  # addresses that are nobody's: and none is ever connected to
WISHES: dict[str, Any] = {
    "hostUsers": True,
    "shareProcessNamespace": True,
    "automountServiceAccountToken": True,
    "serviceAccountName": "default",
    "securityContext": {
        "seccompProfile": {"type": "Unconfined"},
        "appArmorProfile": {"type": "Unconfined"},
        "sysctls": [{"name": "kernel.msgmax", "value": "1"}],
        "procMount": "Unmasked",
    },
}
CONTAINER_WISHES = {
    "seccompProfile": {"type": "Unconfined"},
    "appArmorProfile": {"type": "Unconfined"},
    "procMount": "Unmasked",
    "allowPrivilegeEscalation": True,
    "capabilities": {"add": ["NET_RAW", "CHOWN"]},
}
LOOK = """
import os
status = dict(line.split(":\\t", 1) for line in open("/proc/self/status") if ":\\t" in line)
print(*(status[name].strip() for name in ("Seccomp", "NoNewPrivs", "CapEff", "CapBnd")), end=" ")
print(os.path.exists("/var/run/secrets/kubernetes.io"), os.access("/proc/kcore", os.R_OK), os.access("/proc/sys/kernel/msgmax", os.W_OK))
"""
ASK = """
import os, socket, sys, urllib.parse
way = urllib.parse.urlsplit(os.environ["HTTPS_PROXY"])
with socket.create_connection((way.hostname, way.port), 20) as proxy:
    proxy.sendall(f"CONNECT {sys.argv[1]} HTTP/1.1\\r\\nHost: {sys.argv[1]}\\r\\n\\r\\n".encode())
    print(proxy.makefile().read())
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    kubectl_path()
    folder = tmp_path_factory.mktemp("walls") / "data"
    with running_cluster(folder, "--backend", "namespaces", "--no-pool", "--allow-egress", INSIDE) as found:
        yield found


def pod(name: str, container: dict[str, Any] | None = None, **spec: Any) -> str:
    main = {"name": "main", "image": "host", "command": ["sleep", "1000000"], **(container or {})}
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"app": "box"}}}
    return json.dumps({**body, "spec": {"containers": [main], "terminationGracePeriodSeconds": 0, **spec}})


def run(tenant: Kubectl, name: str, program: str, *arguments: str) -> str:
    return tenant("exec", name, "--", "python3", "-c", program, *arguments)


def test_what_is_ignored_weakens_nothing(cluster: Cluster, kubectl: Kubectl, tmp_path: Path) -> None:
    tenant = bound(cluster, kubectl, tmp_path)
    tenant("create", "--validate=ignore", "-f", "-", stdin=pod("box", {"securityContext": CONTAINER_WISHES}, **WISHES))
    tenant("wait", "pod/box", "--for=condition=Ready", "--timeout=60s", timeout=90)
    zero = "0" * 16
    assert run(tenant, "box", LOOK).split() == ["2", "1", zero, zero, "False", "False", "False"]


@pytest.mark.parametrize(
    ("container", "spec", "said"),
    [
        ({"securityContext": {"privileged": True}}, {}, "securityContext.privileged is refused"),
        ({"securityContext": {"capabilities": {"add": ["SYS_ADMIN"]}}}, {}, "SYS_ADMIN cannot be granted"),
        ({}, {"hostNetwork": True}, "spec.hostNetwork: sandboxes never share"),
        ({}, {"hostPID": True}, "spec.hostPID: sandboxes never share"),
        ({}, {"hostIPC": True}, "spec.hostIPC: sandboxes never share"),
        (
            {"volumeMounts": [{"name": "v", "mountPath": "/v"}]},
            {"volumes": [{"name": "v", "hostPath": {"path": "/etc"}}]},
            "does not allow pods to mount /etc",
        ),
    ],
)
def test_what_would_weaken_them_keeps_the_pod_from_starting(
    container: dict[str, Any], spec: dict[str, Any], said: str, cluster: Cluster, kubectl: Kubectl, tmp_path: Path
) -> None:
    tenant = bound(cluster, kubectl, tmp_path)
    tenant("create", "-f", "-", stdin=pod("box", container, **spec))
    waiting = "{.status.containerStatuses[0].state.waiting.message}"
    tenant("wait", "pod/box", f"--for=jsonpath={waiting}", "--timeout=60s", timeout=90)
    assert said in tenant("get", "pod", "box", "-o", f"jsonpath={waiting}")


def test_another_runtime_is_the_operators_to_offer(cluster: Cluster, kubectl: Kubectl, tmp_path: Path) -> None:
    tenant = bound(cluster, kubectl, tmp_path)
    assert kubectl("get", "runtimeclasses", "-o", "name").split() == ["runtimeclass.node.k8s.io/namespaces"]
    for name in ("gvisor", "process", "mine"):
        refused = tenant.run("create", "-f", "-", stdin=pod("box", runtimeClassName=name))
        assert f'pods "box" is forbidden: pod rejected: RuntimeClass "{name}" not found' in refused.err
    own = {"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": "mine"}, "handler": "process"}
    assert "is forbidden: User" in tenant.run("create", "-f", "-", stdin=json.dumps(own)).err
    binding = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": "box"},
        "target": {"kind": "Node", "name": "x"},
    }
    path = f"/api/v1/namespaces/{tenant.namespace}/pods/box/binding"
    assert (
        'cannot create resource "pods/binding"'
        in tenant.run("create", f"--raw={path}", "-f", "-", stdin=json.dumps(binding)).err
    )


def test_policies_open_only_what_the_operator_allows(cluster: Cluster, kubectl: Kubectl, tmp_path: Path) -> None:
    tenant = bound(cluster, kubectl, tmp_path)
    everything = {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {"name": "open"},
        "spec": {"podSelector": {}, "policyTypes": ["Egress"], "egress": [{}]},
    }
    tenant("create", "-f", "-", stdin=json.dumps(everything))
    tenant("create", "-f", "-", stdin=pod("box"))
    tenant("wait", "pod/box", "--for=condition=Ready", "--timeout=60s", timeout=90)
    for place in ("198.51.100.1:443", "[::ffff:198.51.100.1]:443", "[64:ff9b::203.0.113.1]:443", "203.0.113.1:80"):
        answer = run(tenant, "box", ASK, place)
        assert answer.startswith("HTTP/1.1 403"), (place, answer)
        assert "outside of what the operator of this machine lets sandboxes reach" in answer
    assert "this machine's loopback" in run(tenant, "box", ASK, "127.0.0.1:443")
    noted = tenant("get", "pod", "box", "-o", "jsonpath={.status.conditions[?(@.type=='sandpool.dev/Noted')].message}")
    assert f"NetworkPolicy {tenant.namespace}/open asks for more than the operator" in noted
