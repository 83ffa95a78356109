"""From a pod and the objects that it refers to, to what a backend is told; or why not. Pure, as tables."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandpool.model.codec import convert
from sandpool.model.kinds import CONFIG_MAPS, PERSISTENT_VOLUME_CLAIMS, SECRETS
from sandpool.node.backend import ADDRESS, Workload
from sandpool.node.kubelet.downward import NodeInfo
from sandpool.node.kubelet.environment import expand
from sandpool.node.kubelet.pods import NODE_PODS, NodePod
from sandpool.node.kubelet.references import Found, Kind, Reference, Unresolved, references
from sandpool.node.kubelet.resolve import Resolved, resolve
from sandpool.node.volumes.spec import Claim, Content, EmptyDir, HostPath
from support.simulated.kubelet_node import Body, a_pod

HERE = NodeInfo("local", "192.0.2.1", {"cpu": "8", "memory": "16Gi"})
HIDDEN = "hunter2"


def coded(text: str | bytes) -> str:
    return base64.b64encode(text.encode() if isinstance(text, str) else text).decode()


LOGIN = json.dumps({"auths": {"registry.example": {"username": "me", "password": HIDDEN}}})
FOUND = Found(
    {
        "c": convert(
            CONFIG_MAPS,
            {
                "metadata": {"name": "c"},
                "data": {"k": "v", "two": "2", "a=b": "left out"},
                "binaryData": {"raw": coded(b"\0\1")},
            },
        )
    },
    {
        "s": convert(
            SECRETS, {"metadata": {"name": "s"}, "data": {"p": coded(HIDDEN), "nul": coded("a\0b"), "bad": "%%"}}
        ),
        "login": convert(SECRETS, {"metadata": {"name": "login"}, "data": {".dockerconfigjson": coded(LOGIN)}}),
        "broken": convert(SECRETS, {"metadata": {"name": "broken"}, "data": {".dockerconfigjson": coded(HIDDEN)}}),
    },
    {
        "data": convert(
            PERSISTENT_VOLUME_CLAIMS,
            {
                "metadata": {"name": "data", "namespace": "default", "uid": "claim-1"},
                "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
            },
        ),
        "leaving": convert(
            PERSISTENT_VOLUME_CLAIMS,
            {"metadata": {"name": "leaving", "uid": "claim-2", "deletionTimestamp": "2026-01-01T00:00:00Z"}},
        ),
    },
)


def pod(container: Body | None = None, **spec: Any) -> NodePod:
    body = a_pod(containers=[{"name": "main", "image": "host", **(container or {})}], **spec)
    body["metadata"] |= {"uid": "u1", "namespace": "default", "labels": {"app": "x", "b": 'say "hi"'}}
    body["metadata"]["annotations"] = {"note": "n"}
    return convert(NODE_PODS, body)


def resolved(one: NodePod, found: Found = FOUND) -> Resolved:
    work = Workload(one.metadata.uid, one.metadata.key, one.spec, one.metadata.annotations)
    return resolve(one, work, found, HERE)


def env_of(**container: Any) -> dict[str, str]:
    return dict(resolved(pod(container)).workload.env["main"])


def source(**value_from: Any) -> dict[str, str]:
    return env_of(env=[{"name": "X", "valueFrom": value_from}])


def field(path: str) -> dict[str, Any]:
    return {"fieldRef": {"fieldPath": path}}


def resource(name: str, divisor: str = "0") -> dict[str, Any]:
    return {"resourceFieldRef": {"resource": name, "divisor": divisor}}


@pytest.mark.parametrize(
    ("value_from", "value"),
    [
        (field("metadata.name"), "p"),
        (field("metadata.namespace"), "default"),
        (field("metadata.uid"), "u1"),
        (field("metadata.labels['app']"), "x"),
        (field("metadata.labels['none']"), ""),
        (field("metadata.annotations['note']"), "n"),
        (field("spec.nodeName"), "local"),
        (field("spec.serviceAccountName"), "default"),
        (field("status.hostIP"), "192.0.2.1"),
        (field("status.podIP"), ADDRESS),
        (resource("limits.cpu"), "2"),
        (resource("limits.cpu", "1m"), "1500"),
        (resource("limits.memory", "1Mi"), "64"),
        (resource("limits.memory"), str(64 * 2**20)),
        (resource("requests.cpu"), "0"),
        ({"configMapKeyRef": {"name": "c", "key": "k"}}, "v"),
        ({"secretKeyRef": {"name": "s", "key": "p"}}, HIDDEN),
    ],
)
def test_values_from_elsewhere(value_from: Body, value: str) -> None:
    limits = {"resources": {"limits": {"cpu": "1500m", "memory": "64Mi"}}}
    assert env_of(env=[{"name": "X", "valueFrom": value_from}], **limits) == {"X": value}


def test_a_limit_that_is_not_set_is_what_the_node_has() -> None:
    assert source(**resource("limits.cpu")) == {"X": "8"}
    assert source(**resource("limits.memory", "1Gi")) == {"X": "16"}


@pytest.mark.parametrize(
    "value_from",
    [
        {"configMapKeyRef": {"name": "none", "key": "k", "optional": True}},
        {"configMapKeyRef": {"name": "c", "key": "none", "optional": True}},
        {"secretKeyRef": {"name": "s", "key": "none", "optional": True}},
    ],
)
def test_what_is_optional_may_be_missing(value_from: Body) -> None:
    assert source(**value_from) == {}


@pytest.mark.parametrize(
    ("value_from", "words"),
    [
        ({"configMapKeyRef": {"name": "none", "key": "k"}}, ['configmap "none" not found', "default"]),
        ({"configMapKeyRef": {"name": "c", "key": "none"}}, ["couldn't find key none in ConfigMap default/c"]),
        ({"secretKeyRef": {"name": "none", "key": "k"}}, ['secret "none" not found']),
        ({"secretKeyRef": {"name": "s", "key": "none"}}, ["couldn't find key none in Secret default/s"]),
        ({"secretKeyRef": {"name": "s", "key": "nul"}}, ["env X", "NUL", "mount it as a file"]),
        ({"secretKeyRef": {"name": "s", "key": "bad"}}, ["key bad", '"s"', "base64"]),
        (field("status.phase"), ["status.phase", "metadata.name"]),
        (resource("cpu"), ["'cpu'", "limits.memory"]),
        ({"resourceFieldRef": {"resource": "limits.cpu", "containerName": "who"}}, ["'who'"]),
        ({}, ["valueFrom"]),
    ],
)
def test_what_is_missing_is_named(value_from: Body, words: list[str]) -> None:
    with pytest.raises(Unresolved) as caught:
        source(**value_from)
    assert (caught.value.reason, caught.value.container) == ("CreateContainerConfigError", "main")
    for word in words:
        assert word in caught.value.message


def test_env_from_whole_objects() -> None:
    found = env_of(
        envFrom=[{"configMapRef": {"name": "c"}, "prefix": "C_"}, {"secretRef": {"name": "none", "optional": True}}],
        env=[{"name": "C_two", "value": "over"}],
    )
    assert found == {"C_k": "v", "C_two": "over"}
    with pytest.raises(Unresolved, match='secret "none" not found'):
        env_of(envFrom=[{"secretRef": {"name": "none"}}])


def test_values_build_on_values_before_them() -> None:
    found = env_of(
        envFrom=[{"configMapRef": {"name": "c"}}],
        env=[
            {"name": "A", "value": "$(k)-$(B)-$$(k)"},
            {"name": "B", "value": "$(A)!"},
            {"name": "IP", "valueFrom": field("status.podIP")},
            {"name": "URL", "value": "http://$(IP):80"},
            {"name": "RAW", "valueFrom": {"configMapKeyRef": {"name": "c", "key": "k"}}},
        ],
    )
    assert found["A"] == "v-$(B)-$(k)"
    assert found["B"] == "v-$(B)-$(k)!"
    assert found["URL"] == f"http://{ADDRESS}:80"


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", ""),
        ("$", "$"),
        ("a$", "a$"),
        ("$(A)", "1"),
        ("$(A)$(B)", "12"),
        ("$(none)", "$(none)"),
        ("$$(A)", "$(A)"),
        ("$$$(A)", "$1"),
        ("$$$$", "$$"),
        ("$(A", "$(A"),
        ("$((A))", "$((A))"),
        ("$A ${A}", "$A ${A}"),
        ("$(A)(B)", "1(B)"),
        ("$()", "$()"),
    ],
)
def test_expansion(text: str, value: str) -> None:
    assert expand(text, {"A": "1", "B": "2"}) == value


@given(st.text("$()Ax", max_size=30))
def test_expansion_never_fails_and_puts_in_nothing_else(text: str) -> None:
    found = expand(text, {"A": "1"})
    assert len(found) <= len(text)
    if "$" not in text:
        assert found == text


# Volumes


def volume(**source: Any) -> Any:
    (found,) = resolved(pod(volumes=[{"name": "v", **source}])).workload.volumes
    assert found.name == "v"
    return found.source


@pytest.mark.parametrize(
    ("source", "wanted"),
    [
        ({"emptyDir": {}}, EmptyDir()),
        ({"emptyDir": {"medium": "Memory", "sizeLimit": "1Mi"}}, EmptyDir(True, 2**20)),
        ({"hostPath": {"path": "/srv", "type": "Directory"}}, HostPath("/srv", "Directory")),
        ({"persistentVolumeClaim": {"claimName": "data"}}, Claim("default", "data", "claim-1", 2**30)),
        (
            {"persistentVolumeClaim": {"claimName": "data", "readOnly": True}},
            Claim("default", "data", "claim-1", 2**30, True),
        ),
        (
            {"configMap": {"name": "c", "defaultMode": 0o600}},
            Content({"k": b"v", "two": b"2", "a=b": b"left out", "raw": b"\0\1"}, 0o600),
        ),
        (
            {"configMap": {"name": "c", "items": [{"key": "k", "path": "deep/er", "mode": 0o400}]}},
            Content({"deep/er": b"v"}, 0o644, {"deep/er": 0o400}),
        ),
        ({"configMap": {"name": "none", "optional": True}}, Content()),
        (
            {"secret": {"secretName": "s", "items": [{"key": "p", "path": "p"}]}},
            Content({"p": HIDDEN.encode()}, secret=True),
        ),
        (
            {"downwardAPI": {"items": [{"path": "labels", **field("metadata.labels")}]}},
            Content({"labels": b'app="x"\nb="say \\"hi\\""'}),
        ),
        (
            {
                "projected": {
                    "sources": [
                        {"configMap": {"name": "c", "items": [{"key": "k", "path": "one"}]}},
                        {"secret": {"name": "s", "items": [{"key": "p", "path": "two"}]}},
                        {"downwardAPI": {"items": [{"path": "three", **field("metadata.name")}]}},
                        {"secret": {"name": "none", "optional": True}},
                    ]
                }
            },
            Content({"one": b"v", "two": HIDDEN.encode(), "three": b"p"}, secret=True),
        ),
    ],
)
def test_volumes(source: Body, wanted: Any) -> None:
    assert volume(**source) == wanted


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ({"configMap": {"name": "none"}}, 'configmap "none" not found'),
        ({"configMap": {"name": "c", "items": [{"key": "none", "path": "x"}]}}, "non-existent config key: none"),
        ({"configMap": {"name": "c", "items": [{"key": "k", "path": "../x"}]}}, "leaves the volume"),
        ({"configMap": {"name": "c", "items": [{"key": "k", "path": "/x"}]}}, "leaves the volume"),
        ({"secret": {"secretName": "none"}}, 'secret "none" not found'),
        ({"persistentVolumeClaim": {"claimName": "none"}}, 'persistentvolumeclaim "none" not found; create it'),
        ({"persistentVolumeClaim": {"claimName": "leaving"}}, "is being deleted"),
        ({"projected": {"sources": [{"serviceAccountToken": {"path": "t"}}]}}, "serviceAccountToken is not supported"),
        ({"nfs": {"server": "x", "path": "/"}}, "not supported here"),
        ({"downwardAPI": {"items": [{"path": "ip", **field("status.podIP")}]}}, "only fields of metadata"),
        ({"emptyDir": {"sizeLimit": "much"}}, "quantities must match"),
    ],
)
def test_volumes_that_cannot_be_had(source: Body, words: str) -> None:
    with pytest.raises(Unresolved) as caught:
        volume(**source)
    assert caught.value.reason == "FailedMount"
    assert caught.value.message.startswith('volume "v": ')
    assert words in caught.value.message
    assert HIDDEN not in caught.value.message


def test_a_sub_path_may_be_made_of_variables() -> None:
    mounts = [{"name": "v", "mountPath": "/v", "subPathExpr": "logs/$(NAME)"}, {"name": "v", "mountPath": "/w"}]
    container = {"env": [{"name": "NAME", "valueFrom": field("metadata.name")}], "volumeMounts": mounts}
    work = resolved(pod(container, volumes=[{"name": "v", "emptyDir": {}}])).workload
    assert [mount.sub_path for mount in work.spec.containers[0].volume_mounts] == ["logs/p", ""]
    for wrong in ("$(NONE)", "../$(NAME)", "/$(NAME)"):
        mounts[0]["subPathExpr"] = wrong
        with pytest.raises(Unresolved, match="subPathExpr"):
            resolved(pod(container, volumes=[{"name": "v", "emptyDir": {}}]))


# The rest


def test_logins_come_from_pull_secrets_and_a_bad_one_is_no_obstacle() -> None:
    one = pod(imagePullSecrets=[{"name": "login"}, {"name": "none"}, {"name": "broken"}])
    found = resolved(one)
    assert [(c.registry, c.username, c.password) for c in found.workload.credentials] == [
        ("registry.example", "me", HIDDEN)
    ]
    assert ["'none' not found" in found.warnings[0], "'broken' cannot be read" in found.warnings[1]] == [True, True]
    assert HIDDEN not in str(found.warnings)


@pytest.mark.parametrize(
    ("container", "words"),
    [
        ({"readinessProbe": {"grpc": {"port": 1}}}, "readinessProbe: grpc is not supported"),
        ({"livenessProbe": {"httpGet": {"port": 1, "host": "192.0.2.9"}}}, "only the pod itself can be probed"),
        ({"lifecycle": {"preStop": {"tcpSocket": {"port": 1, "host": "x"}}}}, "lifecycle.preStop: host 'x' is refused"),
    ],
)
def test_probes_that_cannot_be_carried_out_are_refused(container: Body, words: str) -> None:
    with pytest.raises(Unresolved, match="container main") as caught:
        resolved(pod(container))
    assert words in caught.value.message


def test_secrets_are_never_shown() -> None:
    one = pod(
        {"env": [{"name": "P", "valueFrom": {"secretKeyRef": {"name": "s", "key": "p"}}}]},
        volumes=[{"name": "v", "secret": {"secretName": "s", "items": [{"key": "p", "path": "p"}]}}],
        imagePullSecrets=[{"name": "login"}],
    )
    found = resolved(one)
    for shown in (repr(found), str(found), repr(FOUND), str(FOUND)):
        assert HIDDEN not in shown
        assert coded(HIDDEN) not in shown


def test_init_containers_have_an_environment_too() -> None:
    one = pod(initContainers=[{"name": "first", "image": "host", "env": [{"name": "A", "value": "1"}]}])
    assert resolved(one).workload.env == {"first": {"A": "1"}, "main": {}}


def test_a_plain_pod_refers_to_nothing() -> None:
    assert (
        references(pod({"env": [{"name": "A", "value": "1"}]}, volumes=[{"name": "v", "emptyDir": {}}]).spec) == set()
    )


def test_everything_that_is_referred_to_is_found() -> None:
    one = pod(
        {
            "env": [
                {"name": "A", "valueFrom": {"configMapKeyRef": {"name": "c1", "key": "k"}}},
                {"name": "B", "valueFrom": {"secretKeyRef": {"name": "s1", "key": "k"}}},
            ],
            "envFrom": [{"configMapRef": {"name": "c2"}}, {"secretRef": {"name": "s2"}}],
        },
        volumes=[
            {"name": "1", "configMap": {"name": "c3"}},
            {"name": "2", "secret": {"secretName": "s3"}},
            {"name": "3", "persistentVolumeClaim": {"claimName": "p1"}},
            {"name": "4", "projected": {"sources": [{"configMap": {"name": "c4"}}, {"secret": {"name": "s4"}}]}},
        ],
        imagePullSecrets=[{"name": "s5"}],
    )
    wanted = {Reference(Kind.CONFIG_MAP, f"c{i}") for i in range(1, 5)}
    wanted |= {Reference(Kind.SECRET, f"s{i}") for i in range(1, 6)} | {Reference(Kind.CLAIM, "p1")}
    assert references(one.spec) == wanted
