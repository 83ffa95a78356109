"""A real API server takes every pod after hardening that it takes before, and refuses what hardening leaves out."""

from __future__ import annotations

import json
import urllib.error
from collections.abc import Iterator
from typing import Any

import pytest

from sandpool.model.blueprint import hardened
from sandpool.model.container_defaults import STANDARD
from support.kube import server as kube_server

pytestmark = [pytest.mark.kube, pytest.mark.timeout(300)]

PODS = "/api/v1/namespaces/default/pods?dryRun=All"


@pytest.fixture(scope="module")
def server() -> Iterator[kube_server.KubeServer]:
    if lacking := kube_server.lacking():
        pytest.skip(lacking)
    with kube_server.running(controllers=False) as server:
        yield server


def pod(context: Any = None, **more: Any) -> dict[str, Any]:
    one = {"name": "main", "image": "python", **({} if context is None else {"securityContext": context})}
    return {"containers": [one], "initContainers": [{**one, "name": "first"}], **more}


def made(server: kube_server.KubeServer, spec: dict[str, Any]) -> dict[str, Any]:
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "one"}, "spec": spec}
    found: dict[str, Any] = server.request("POST", PODS, body)["spec"]
    return found


def sized(**resources: Any) -> dict[str, Any]:
    spec = pod()
    return {field: [{**one, "resources": resources} for one in several] for field, several in spec.items()}


CONFINED = {"allowPrivilegeEscalation": False}
SECCOMP = {"seccompProfile": {"type": "RuntimeDefault"}}
ADMINISTERS = {"capabilities": {"add": ["CAP_SYS_ADMIN"]}}
WINDOWS = {"os": {"name": "windows"}}
# Privileged pods are missing here: this server takes none, unless it is started with --allow-privileged.
VALID = {
    "bare": pod(),
    "administers": pod(ADMINISTERS),
    "administers, spelt short": pod({"capabilities": {"add": ["SYS_ADMIN"]}}),
    "all capabilities": pod({"capabilities": {"add": ["ALL"]}}),
    "escalates": pod({"allowPrivilegeEscalation": True}),
    "root": pod({"runAsUser": 0, "runAsNonRoot": False}),
    "own profile": pod({"seccompProfile": {"type": "Unconfined"}}),
    "unconfined": pod(securityContext={"seccompProfile": {"type": "Unconfined"}}),
    "local profile": pod(securityContext={"seccompProfile": {"type": "Localhost", "localhostProfile": "p.json"}}),
    "user namespace": pod(hostUsers=False),
    "host network": pod(hostNetwork=True, hostPID=True),
    "sidecar": pod() | {"initContainers": [{"name": "side", "image": "x", "restartPolicy": "Always"}]},
    "windows": pod(**WINDOWS),
    "windows by selector": pod(nodeSelector={"kubernetes.io/os": "windows"}),
    "linux": pod(os={"name": "linux"}),
    "large request": sized(requests={"memory": "3Gi", "cpu": "2500m"}),
    "small request": sized(requests={"memory": "1Mi", "ephemeral-storage": "1Mi"}),
    "one limit": sized(limits={"memory": "64Gi"}),
    "zero limits": sized(limits={"cpu": "0", "memory": "0"}),
    "device": sized(limits={"example.org/device": "1"}),
    "huge pages": sized(limits={"hugepages-2Mi": "2Mi", "memory": "2Mi"}),
    "resource claim": sized(claims=[{"name": "device"}])
    | {"resourceClaims": [{"name": "device", "resourceClaimName": "mine"}]},
    "pod as a whole": pod(resources={"limits": {"cpu": "1", "memory": "64Mi"}, "requests": {"cpu": "1"}}),
    "large scratch": pod(volumes=[{"name": "v", "emptyDir": {"sizeLimit": "64Gi"}}]),
}


@pytest.mark.parametrize("name", VALID)
def test_a_valid_pod_stays_valid(server: kube_server.KubeServer, name: str) -> None:
    made(server, VALID[name])
    wanted = hardened(VALID[name], STANDARD)
    found = made(server, wanted)
    assert found.get("securityContext") == wanted.get("securityContext", {})
    for field in ("containers", "initContainers"):
        contexts = [[one.get("securityContext") for one in spec[field]] for spec in (found, wanted)]
        assert contexts[0] == contexts[1]
        for shown, sent in zip(found[field], wanted[field], strict=True):
            # Nothing is reserved that we did not send: a server takes a limit without a request for one.
            said = sent.get("resources") or {}
            assert shown["resources"].get("limits", {}) == said.get("limits", {})
            assert shown["resources"].get("requests", {}) == {**said.get("limits", {}), **said.get("requests", {})}


UNCONFINED = "cannot set `allowPrivilegeEscalation` to false and "
FOR_LINUX = "cannot be set for a windows pod"


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        pytest.param(pod({"privileged": True, **CONFINED}), UNCONFINED + "`privileged` to true", id="privileged"),
        pytest.param(pod({**ADMINISTERS, **CONFINED}), UNCONFINED, id="administers"),
        pytest.param(pod(**WINDOWS, securityContext=SECCOMP), FOR_LINUX, id="profile on Windows"),
        pytest.param(pod(CONFINED, **WINDOWS), FOR_LINUX, id="escalation on Windows"),
    ],
)
def test_what_is_left_out_would_be_refused(server: kube_server.KubeServer, spec: dict[str, Any], why: str) -> None:
    with pytest.raises(urllib.error.HTTPError) as refused:
        made(server, spec)
    assert refused.value.code == 422
    assert why in json.load(refused.value)["message"]
