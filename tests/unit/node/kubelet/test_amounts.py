"""A pod whose few words stand for more than memory holds: refused before it is made, and told which container or volume it is."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from typing import Any

import pytest

from sandpool.base.errors import NodeError
from sandpool.model.codec import convert
from sandpool.model.core import Secret
from sandpool.model.kinds import CONFIG_MAPS, SECRETS
from sandpool.node.backend import ContainerSpec, Workload
from sandpool.node.images import credentials
from sandpool.node.images.image import ImageConfig
from sandpool.node.kubelet import contents, downward, environment, files
from sandpool.node.kubelet import resolve as resolving
from sandpool.node.kubelet.downward import NodeInfo
from sandpool.node.kubelet.pods import NODE_PODS, NodePod
from sandpool.node.kubelet.references import Found, Unresolved, heavy
from sandpool.node.kubelet.resolve import Resolved, resolve
from sandpool.node.pods.runtime_plans import argv
from sandpool.node.volumes.spec import Content
from support.simulated.kubelet_node import a_pod

HERE = NodeInfo("local", "192.0.2.1", {"cpu": "8", "memory": "16Gi"})
FOUND = Found({"large": convert(CONFIG_MAPS, {"metadata": {"name": "large"}, "data": {"k": "x" * 900_000}})})
DOUBLED = [
    {"name": "A0", "value": "xx"},
    *({"name": f"A{n}", "value": f"$(A{n - 1})$(A{n - 1})"} for n in range(1, 24)),
]


def a_node_pod(containers: list[dict[str, Any]], annotations: dict[str, str] | None = None, /, **spec: Any) -> NodePod:
    named = [{"name": f"c{n}", "image": "host", **one} for n, one in enumerate(containers)]
    body = a_pod(annotations=annotations, containers=named, **spec)
    body["metadata"] |= {"uid": "u1", "namespace": "default"}
    return convert(NODE_PODS, body)


def completed(pod: NodePod, found: Found = FOUND) -> Resolved:
    return resolve(pod, Workload(pod.metadata.uid, pod.metadata.key, pod.spec, pod.metadata.annotations), found, HERE)


def resolved(containers: list[dict[str, Any]], **spec: Any) -> Resolved:
    return completed(a_node_pod(containers, **spec))


def a_secret(name: str, data: bytes, key: str = "k") -> Secret:
    return convert(SECRETS, {"metadata": {"name": name}, "data": {key: base64.b64encode(data).decode()}})


def counting(monkeypatch: pytest.MonkeyPatch, where: Any, name: str, cost: Callable[..., int]) -> list[int]:
    """What each call of a function is given, from now on."""
    inner, seen = getattr(where, name), list[int]()

    def counted(*args: Any) -> Any:
        seen.append(cost(*args))
        return inner(*args)

    monkeypatch.setattr(where, name, counted)
    return seen


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


def some_logins(number: int, of: str = "r") -> bytes:
    return json.dumps({"auths": {f"{of}{n}": {"auth": "YTpi"} for n in range(number)}}).encode()


def test_a_secret_with_logins_that_is_named_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Read once, and no more of it than a pod may have."""
    read = counting(monkeypatch, credentials, "login", lambda entry, registry: 1)
    decoded = counting(monkeypatch, contents, "decoded", len)
    found = Found({}, {"s": a_secret("s", some_logins(30_000), ".dockerconfigjson")})
    made = completed(a_node_pod([{}], imagePullSecrets=[{"name": "s"}] * 40), found)
    assert len(made.workload.credentials) == resolving.MOST_LOGINS
    assert len(read) == resolving.MOST_LOGINS + 1
    assert len(decoded) == 1
    assert [doubt for doubt in made.warnings if "only the first 256 logins" in doubt] == list(made.warnings)


def test_secrets_with_logins_that_are_large_together(monkeypatch: pytest.MonkeyPatch) -> None:
    decoded = counting(monkeypatch, contents, "decoded", len)
    names = [f"s{n}" for n in range(64)]
    found = Found({}, {name: a_secret(name, b"{" + b" " * 700_000, ".dockerconfigjson") for name in names})
    made = completed(a_node_pod([{}], imagePullSecrets=[{"name": name} for name in names]), found)
    assert sum(decoded) <= resolving.MOST_LOGIN_BYTES
    assert "from secret 's4' on they are not read" in made.warnings[-1]


def test_all_logins_of_a_pod_that_has_few() -> None:
    found = Found({}, {name: a_secret(name, some_logins(100, name), ".dockerconfigjson") for name in ("a", "b")})
    made = completed(a_node_pod([{}], imagePullSecrets=[{"name": "a"}, {"name": "b"}, {"name": "a"}]), found)
    assert (len(made.workload.credentials), made.warnings) == (200, ())


@pytest.mark.parametrize("containers", [1, 60])
def test_variables_that_are_left_out(monkeypatch: pytest.MonkeyPatch, containers: int) -> None:
    """They are work as others are: each counts before it is decoded, and is decoded once."""
    decoded = counting(monkeypatch, contents, "decoded", len)
    found = Found({}, {"s": a_secret("s", b"\0" * 500_000)})
    container = {"envFrom": [{"secretRef": {"name": "s"}}] * (2 if containers > 1 else 150)}
    with pytest.raises(Unresolved, match="take more than") as refused:
        completed(a_node_pod([container] * containers), found)
    assert refused.value.container == ("c4" if containers > 1 else "c0")
    assert len(decoded) == 1


def test_names_that_cannot_be_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    looked_at = counting(monkeypatch, environment, "size_of", lambda kind, stored: 1)
    many = convert(CONFIG_MAPS, {"metadata": {"name": "c"}, "data": {f"k{n:x}": "" for n in range(100_000)}})
    with pytest.raises(Unresolved, match=f"more than {environment.MOST} characters"):
        completed(a_node_pod([{"envFrom": [{"configMapRef": {"name": "c"}, "prefix": "="}] * 150}]), Found({"c": many}))
    assert len(looked_at) <= environment.MOST // environment.EACH


def test_optional_variables_of_which_there_is_nothing() -> None:
    """They are work, too."""
    ref = {"configMapKeyRef": {"name": "c", "key": "k", "optional": True}}
    with pytest.raises(Unresolved, match=f"more than {environment.MOST} characters"):
        resolved([{"env": [{"name": "e", "valueFrom": ref}] * 40_000}])


def test_annotations_that_nobody_asks_for(monkeypatch: pytest.MonkeyPatch) -> None:
    written = counting(monkeypatch, downward, "lines", len)
    many = {f"a{n:x}": "" for n in range(40_000)}

    def ask(path: str) -> dict[str, Any]:
        return {"env": [{"name": f"e{n}", "valueFrom": {"fieldRef": {"fieldPath": path}}} for n in range(30)]}

    completed(a_node_pod([ask("metadata.name"), ask("metadata.annotations['a1']")], many))
    assert written == []
    shown = [{"path": str(n), "fieldRef": {"fieldPath": "metadata.annotations"}} for n in range(30)]
    volumes = [{"name": "v", "downwardAPI": {"items": shown}}]
    with pytest.raises(Unresolved, match=f"more than {environment.MOST} characters"):
        completed(a_node_pod([ask("metadata.annotations")], many, volumes=volumes))
    assert written == [40_000]


def test_files_of_one_object_share_its_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    decoded = counting(monkeypatch, contents, "decoded", len)
    found = Found(FOUND.config_maps, {"s": a_secret("s", b"x" * 700_000)})
    volumes = [{"name": f"v{n}", "secret": {"secretName": "s"}} for n in range(16)]
    volumes += [{"name": f"w{n}", "configMap": {"name": "large"}} for n in range(16)]
    made = completed(a_node_pod([{}], volumes=volumes), found)
    sources = [spec.source for spec in made.workload.volumes]
    assert len({id(data) for one in sources if isinstance(one, Content) for data in one.files.values()}) == 2
    assert len(decoded) == 1


@pytest.mark.parametrize(
    ("containers", "spec", "is_heavy"),
    [
        ([{}], {}, False),
        ([{"env": [{"name": f"E{n}", "value": "x" * 20} for n in range(20)]}], {}, False),
        ([{"env": [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}]}], {}, False),
        ([{"envFrom": [{"secretRef": {"name": "small"}}]}], {"imagePullSecrets": [{"name": "small"}]}, False),
        ([{}], {"volumes": [{"name": "v", "secret": {"secretName": "small"}}]}, False),
        ([{"envFrom": [{"secretRef": {"name": "small"}}] * 200}], {}, True),
        ([{"env": [{"name": "A", "value": "$" * 70_000}]}], {}, True),
        ([{}], {"imagePullSecrets": [{"name": "small"}] * 200}, True),
        ([{}], {"volumes": [{"name": "v", "secret": {"secretName": "small"}}] * 200}, True),
    ],
)
def test_what_is_put_together_beside_the_event_loop(
    containers: list[dict[str, Any]], spec: dict[str, Any], is_heavy: bool
) -> None:
    """An ordinary pod pays for no thread."""
    found = Found({}, {"small": a_secret("small", b"x" * 1000)})
    assert heavy(a_node_pod(containers, **spec), found) is is_heavy


@pytest.mark.parametrize("path", ["metadata.name", "metadata.annotations"])
def test_large_metadata_is_work(path: str) -> None:
    env = [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": path}}}]
    assert heavy(a_node_pod([{"env": env}], {f"a{n:x}": "" for n in range(40_000)}), Found())
    assert not heavy(a_node_pod([{}], {f"a{n:x}": "" for n in range(40_000)}), Found())
