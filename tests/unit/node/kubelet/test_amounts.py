"""A pod whose few words stand for more than memory holds: refused before it is made, and told which container or volume it is."""

from __future__ import annotations

from typing import Any

import pytest

from sandpool.base.errors import NodeError
from sandpool.model.codec import convert
from sandpool.model.kinds import CONFIG_MAPS
from sandpool.node.backend import ContainerSpec, Workload
from sandpool.node.images.image import ImageConfig
from sandpool.node.kubelet import environment, files
from sandpool.node.kubelet.downward import Here
from sandpool.node.kubelet.pods import NODE_PODS
from sandpool.node.kubelet.references import Found, Unresolved
from sandpool.node.kubelet.resolve import Resolved, resolve
from sandpool.node.pods.variables import argv
from support.kubelet_node import a_pod

HERE = Here("local", "192.0.2.1", {"cpu": "8", "memory": "16Gi"})
FOUND = Found({"large": convert(CONFIG_MAPS, {"metadata": {"name": "large"}, "data": {"k": "x" * 900_000}})})
DOUBLED = [
    {"name": "A0", "value": "xx"},
    *({"name": f"A{n}", "value": f"$(A{n - 1})$(A{n - 1})"} for n in range(1, 24)),
]


def resolved(containers: list[dict[str, Any]], **spec: Any) -> Resolved:
    body = a_pod(containers=[{"name": f"c{n}", "image": "host", **one} for n, one in enumerate(containers)], **spec)
    body["metadata"] |= {"uid": "u1", "namespace": "default"}
    pod = convert(NODE_PODS, body)
    return resolve(pod, Workload(pod.metadata.uid, pod.metadata.key, pod.spec, pod.metadata.annotations), FOUND, HERE)


@pytest.mark.parametrize(
    "container",
    [
        {"env": DOUBLED},
        {"env": [{"name": "A", "value": "x" * 600_000}, {"name": "B", "value": "$(A)"}]},
        {"envFrom": [{"configMapRef": {"name": "large"}, "prefix": f"P{n}"} for n in range(3)]},
        {"env": [{"name": f"E{n}", "valueFrom": {"configMapKeyRef": {"name": "large", "key": "k"}}} for n in range(3)]},
    ],
)
def test_variables_of_a_container(container: dict[str, Any]) -> None:
    with pytest.raises(Unresolved, match=f"more than {environment.MOST} characters") as refused:
        resolved([{}, container])
    assert (refused.value.reason, refused.value.container) == ("CreateContainerConfigError", "c1")


def test_variables_of_a_pod() -> None:
    with pytest.raises(Unresolved, match="containers take more than") as refused:
        resolved([{"envFrom": [{"configMapRef": {"name": "large"}}]} for _ in range(6)])
    assert refused.value.container == "c4"


def test_a_sub_path() -> None:
    mount = {"name": "v", "mountPath": "/v", "subPathExpr": "$(A)/$(A)"}
    container = {"env": [{"name": "A", "value": "x" * 3000}], "volumeMounts": [mount]}
    with pytest.raises(Unresolved, match="is not a path inside the volume"):
        resolved([container], volumes=[{"name": "v", "emptyDir": {}}])


@pytest.mark.parametrize(
    "volumes",
    [
        [{"name": f"v{n}", "configMap": {"name": "large"}} for n in range(40)],
        [{"name": "v", "configMap": {"name": "large", "items": [{"key": "k", "path": str(n)} for n in range(40)]}}],
        [
            {
                "name": "v",
                "downwardAPI": {
                    "items": [{"path": str(n), "fieldRef": {"fieldPath": "metadata.name"}} for n in range(9000)]
                },
            }
        ],
    ],
)
def test_files_of_volumes(volumes: list[dict[str, Any]]) -> None:
    with pytest.raises(Unresolved, match=f"take more than {files.MOST} bytes") as refused:
        resolved([{}], volumes=volumes)
    assert refused.value.reason == "FailedMount"
    assert 'volume "v' in refused.value.message


def test_a_command() -> None:
    env = {"A": "x" * 100_000}
    for spec in (
        ContainerSpec(name="main", command=("$(A)" * 40,)),
        ContainerSpec(name="main", args=("$(A)",) * 40),
    ):
        with pytest.raises(NodeError, match="container main: command and args take more than"):
            argv(spec, ImageConfig(entrypoint=("/e",)), env)
    assert argv(ContainerSpec(command=("$(A)" * 20,)), ImageConfig(), env) == ("x" * 2_000_000,)


def test_a_variable_that_begins_to_name_others_all_the_time() -> None:
    """Searched once: if each were looked for to the end of the text, this would take an hour, in the process that serves everybody."""
    with pytest.raises(Unresolved, match=f"more than {environment.MOST} characters"):
        resolved([{"env": [{"name": "A", "value": "$(" * 10_000_000}]}])
    assert environment.expand("$($(a)$$($(b)$$($$", {"$(a": "1", "b": "2"}) == "1$(2$($"
