"""The chart with the real helm: it is what `sandpool install` prints, and a real API server accepts every variant of it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from sandpool.cli.controller import controller
from sandpool.cli.default_flags import DefaultFlags
from sandpool.cli.main import build
from sandpool.cli.router import router
from sandpool.install.objects import objects
from sandpool.install.rules import CLUSTER, CORE, DEFINITIONS, ROUTER_NAMESPACED, STORAGE
from sandpool.install.settings import Settings
from sandpool.model.blueprint import secure_pod_spec
from sandpool.model.container_defaults import STANDARD, ContainerDefaults, amounts
from sandpool.model.template import SandboxTemplate
from support.kube.helm import CHART, NAMESPACE, by_identity, documents, helm, rendered, template
from support.kube.kubectl import Kubectl
from support.kube.server import KubeServer
from support.product.cluster import sandpool

pytestmark = pytest.mark.kube
GUIDE = CHART.parents[2] / "docs/how-to/install-on-kubernetes.md"
INSTALLERS = ("app.kubernetes.io/managed-by", "helm.sh/chart")
"""Labels that say who installed it: these differ."""
WHOLE = ("--include-crds", "--set", "namespace.create=true")
VARIANTS: dict[str, Any] = {
    "default": {},
    "everything": {
        "watchNamespaces": ["default", "red"],
        "namespace": {"create": True},
        "clusterDomain": "example.org",
        "image": {"digest": "sha256:" + "0" * 64},
        "imagePullSecrets": [{"name": "registry"}],
        "kubeApi": {"qps": 100, "burst": 200},
        "workers": {"claim": 400, "sandbox": 100, "pool": 8, "template": 1},
        "refill": {"rate": 12.5, "batch": 300},
        "hardening": {"defaultLimits": "memory=1Gi", "defaultRequests": ""},
        "tracing": {"enabled": True, "endpoint": "http://collector.monitoring:4318"},
        "extraArgs": ["--verbose"],
        "extraEnv": [{"name": "TZ", "value": "UTC"}],
        "serviceAccount": {"name": "other", "annotations": {"example.org/role": "x"}},
        "podAnnotations": {"example.org/a": "1"},
        "podLabels": {"example.org/team": "red", "app.kubernetes.io/name": "stolen"},
        "nodeSelector": {"kubernetes.io/os": "linux"},
        "tolerations": [{"key": "control", "operator": "Exists"}],
        "affinity": {"nodeAffinity": {}},
        "topologySpreadConstraints": [],
        "priorityClassName": "system-cluster-critical",
        "hostAliases": [{"ip": "10.96.0.1", "hostnames": ["kubernetes.default.svc"]}],
        "rbac": {"adoptStorage": True},
        "podDisruptionBudget": {"maxUnavailable": "50%"},
        "metrics": {
            "serviceMonitor": {"enabled": True, "labels": {"release": "prometheus"}, "scrapeTimeout": "10s"},
            "prometheusRule": {"enabled": True, "additionalGroups": [{"name": "mine", "rules": []}]},
            "dashboard": {"enabled": True},
        },
        "networkPolicy": {
            "metricsFrom": [{"namespaceSelector": {"matchLabels": {"metrics": "enabled"}}}],
            "restrictEgress": True,
            "extraEgress": [{"ports": [{"protocol": "TCP", "port": 4318}]}],
        },
        "config": {"configMap": "settings", "allowedLabelDomains": ["team.example.org", "sandbox.users.io"]},
        "apiPriority": {"enabled": True, "shares": 50},
        "extraVolumes": [{"name": "more", "emptyDir": {}}],
        "extraVolumeMounts": [{"name": "more", "mountPath": "/more"}],
        "router": {"namespace": "edge"},
    },
    "a router with everything": {
        "watchNamespaces": ["red"],
        "podLabels": {"app": "stolen", "example.org/team": "red"},
        "extraEnv": [{"name": "TZ", "value": "UTC"}],
        "router": {
            "name": "way-in",
            "replicas": 3,
            "tokenKeysSecret": "other",
            "tlsSecret": "certificate",
            "url": "https://boxes.example.org",
            "trustPortForward": True,
            "audit": False,
            "activity": False,
            "extraArgs": ["--allowed-host=boxes.example.org"],
            "extraEnv": [{"name": "LANG", "value": "C.UTF-8"}],
            "extraVolumes": [{"name": "more", "emptyDir": {}}],
            "extraVolumeMounts": [{"name": "more", "mountPath": "/more"}],
            "networkPolicy": {
                "from": [{"namespaceSelector": {}}],
                "metricsFrom": [{"podSelector": {}}],
                "extraEgress": [{"ports": [{"protocol": "TCP", "port": 4318}]}],
            },
            "ingress": {
                "enabled": True,
                "className": "nginx",
                "host": "boxes.example.org",
                "tlsSecret": "boxes",
                "annotations": {"nginx.ingress.kubernetes.io/proxy-buffering": "off"},
            },
            "httpRoute": {"enabled": True, "parentRefs": [{"name": "gateway"}], "hostnames": ["boxes.example.org"]},
        },
        "metrics": {"tls": {"enabled": True, "secret": "metrics"}, "serviceMonitor": {"enabled": True}},
    },
    "values of an earlier chart": {
        "config": None,
        "extraVolumes": None,
        "extraVolumeMounts": None,
        "apiPriority": None,
        "metrics": {"tls": None, "serviceMonitor": {"enabled": True, "tlsConfig": None}},
        "router": {
            "extraEnv": None,
            "extraVolumes": None,
            "extraVolumeMounts": None,
            "ingress": None,
            "httpRoute": None,
            "networkPolicy": {"enabled": True, "extraEgress": None},
        },
    },
    "as little as possible": {
        "replicas": 1,
        "leaderElection": False,
        "extensions": False,
        "serviceAccount": {"create": False, "name": "there"},
        "rbac": {"create": False},
        "podDisruptionBudget": {"enabled": False},
        "service": {"enabled": False},
        "networkPolicy": {"enabled": False},
        "router": {"enabled": False},
        "resources": {"requests": None, "limits": None},
        "podSecurityContext": {},
        "logFormat": "text",
    },
}  # fmt: skip
FOREIGN = {"ServiceMonitor", "PrometheusRule", "HTTPRoute"}
"""Kinds that the Prometheus operator and the Gateway API bring."""


@pytest.fixture(params=VARIANTS)
def variant(request: pytest.FixtureRequest, tmp_path: Path) -> list[dict[str, Any]]:
    return with_values(VARIANTS[request.param], tmp_path)


def with_values(values: dict[str, Any], home: Path, *arguments: str) -> list[dict[str, Any]]:
    file = home / "values.yaml"
    file.write_text(yaml.safe_dump(values))
    return rendered("--values", str(file), *arguments, home=home)


def without_installer(body: Any) -> Any:
    if isinstance(body, dict):
        return {key: without_installer(value) for key, value in body.items() if key not in INSTALLERS}
    return [without_installer(item) for item in body] if isinstance(body, list) else body


def same(ours: list[dict[str, Any]], theirs: list[dict[str, Any]]) -> None:
    left, right = by_identity(without_installer(ours)), by_identity(without_installer(theirs))
    assert left.keys() == right.keys()
    for identity, body in left.items():
        assert body == right[identity], identity


def of_component(found: list[dict[str, Any]], component: str = "controller") -> list[dict[str, Any]]:
    label = "app.kubernetes.io/component"
    return [body for body in found if body["metadata"].get("labels", {}).get(label) == component]


def deployment_of(found: list[dict[str, Any]], component: str = "controller") -> dict[str, Any]:
    (deployment,) = (body for body in of_component(found, component) if body["kind"] == "Deployment")
    return deployment


def test_lint(tmp_path: Path) -> None:
    assert "0 chart(s) failed" in helm("lint", "--strict", str(CHART), home=tmp_path).stdout


def test_install_prints_the_same(tmp_path: Path) -> None:
    same(objects(Settings(namespace=NAMESPACE)), rendered(*WHOLE, home=tmp_path))


def test_install_prints_the_same_for_some_namespaces(tmp_path: Path) -> None:
    settings = Settings(namespace="here", image="example.org/x:1", watch_namespaces=("red", "blue"))
    values = {"watchNamespaces": ["red", "blue"], "image": {"repository": "example.org/x", "tag": "1"}}
    same(objects(settings), with_values(values, tmp_path, *WHOLE, "--namespace", "here"))


def test_by_default_it_has_all_but_the_namespace(tmp_path: Path) -> None:
    missing = (
        by_identity(rendered(*WHOLE, home=tmp_path)).keys()
        - by_identity(rendered("--include-crds", home=tmp_path)).keys()
    )
    assert missing == {("Namespace", "", NAMESPACE)}


def test_in_some_namespaces_there_are_roles_only(tmp_path: Path) -> None:
    found = of_component(with_values({"watchNamespaces": ["red", "blue"]}, tmp_path))
    cluster = [rule for body in found if body["kind"] == "ClusterRole" for rule in body["rules"]]
    assert cluster == [rule.body() for rule in CLUSTER]
    roles = {body["metadata"]["namespace"] for body in found if body["kind"] == "Role" and len(body["rules"]) > 2}
    assert roles == {"red", "blue"}
    deployment = deployment_of(found)
    assert "--watch-namespaces=red,blue" in deployment["spec"]["template"]["spec"]["containers"][0]["args"]


def test_for_sandboxes_alone_nothing_else_is_granted(tmp_path: Path) -> None:
    found = of_component(with_values({"extensions": False}, tmp_path))
    (role,) = (body for body in found if body["kind"] == "ClusterRole")
    assert role["rules"] == [rule.body() for rule in (*CORE, *DEFINITIONS)]


def test_the_controller_knows_its_arguments(variant: list[dict[str, Any]]) -> None:
    deployment = deployment_of(variant)
    command, given, *_ = build().parse_args(
        deployment["spec"]["template"]["spec"]["containers"][0]["args"], exit_on_error=False, print_error=False
    )
    assert command is controller
    for flags in given.arguments.values():
        for check in (
            "namespaces", "router", "terms", "rate", "workers", "pool", "defaults", "stories_address", "metrics_tls",
        ):  # fmt: skip
            if hasattr(flags, check):
                getattr(flags, check)()


def test_the_router_knows_its_arguments(variant: list[dict[str, Any]]) -> None:
    for deployment in (body for body in of_component(variant, "router") if body["kind"] == "Deployment"):
        command, given, *_ = build().parse_args(
            deployment["spec"]["template"]["spec"]["containers"][0]["args"], exit_on_error=False, print_error=False
        )
        assert command is router
        for flags in given.arguments.values():
            for check in ("served", "certificate", "base", "allowed", "metrics_tls"):
                if hasattr(flags, check):
                    getattr(flags, check)()


def test_the_router_can_be_elsewhere_or_nowhere(tmp_path: Path) -> None:
    for values in ({"enabled": False}, {"namespace": "edge"}):
        assert of_component(with_values({"router": values}, tmp_path), "router") == []


def test_without_notes_of_activity_the_router_changes_nothing(tmp_path: Path) -> None:
    found = of_component(with_values(VARIANTS["a router with everything"], tmp_path), "router")
    rules = [rule for body in found if body["kind"] in ("Role", "ClusterRole") for rule in body["rules"]]
    assert next(rule.body() for rule in ROUTER_NAMESPACED) in rules
    assert not any("patch" in rule["verbs"] for rule in rules)


def test_sandboxes_let_the_router_in(tmp_path: Path) -> None:
    """By the label that the NetworkPolicy of templates asks for, whatever labels an operator adds."""
    for values in ({}, VARIANTS["a router with everything"]):  # type: ignore[var-annotated]
        found = with_values(values, tmp_path)
        labels = deployment_of(found, "router")["spec"]["template"]["metadata"]["labels"]
        assert labels["app"] == "sandbox-router"
        (service,) = (body for body in of_component(found, "router") if body["kind"] == "Service")
        assert service["metadata"]["name"] == "sandbox-router-svc"
        assert service["spec"]["selector"].items() <= labels.items()
        controller_labels = deployment_of(found)["spec"]["template"]["metadata"]["labels"]
        assert not service["spec"]["selector"].items() <= controller_labels.items()


@pytest.mark.parametrize(
    ("values", "defaults"),
    [
        pytest.param({}, STANDARD, id="default"),
        pytest.param(None, STANDARD, id="values of an earlier chart"),
        pytest.param({"defaultLimits": ""}, ContainerDefaults((), STANDARD.requests), id="off"),
        pytest.param(
            {"defaultLimits": "memory=1Gi", "defaultRequests": ""},
            ContainerDefaults(amounts("memory=1Gi")),
            id="others",
        ),
    ],
)
def test_default_limits_reach_the_controller(
    values: dict[str, str] | None, defaults: ContainerDefaults, tmp_path: Path
) -> None:
    found = with_values({"hardening": values}, tmp_path)
    deployment = deployment_of(found)
    arguments = deployment["spec"]["template"]["spec"]["containers"][0]["args"]
    _, given, *_ = build().parse_args(arguments, exit_on_error=False, print_error=False)
    flags = given.arguments.get("defaults", DefaultFlags())
    assert flags.defaults() == defaults


def test_storage_can_be_adopted_where_an_operator_says_so(tmp_path: Path) -> None:
    plain, more = (
        [rule for body in found if body["kind"] == "ClusterRole" for rule in body["rules"]]
        for found in (with_values({}, tmp_path), with_values({"rbac": {"adoptStorage": True}}, tmp_path))
    )
    assert [rule for rule in more if rule not in plain] == [rule.body() for rule in STORAGE]


def test_monitoring(tmp_path: Path) -> None:
    found = {body["kind"]: body for body in of_component(with_values(VARIANTS["everything"], tmp_path))}
    (service, monitor) = (found[kind] for kind in ("Service", "ServiceMonitor"))
    assert monitor["spec"]["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
    assert [each["port"] for each in monitor["spec"]["endpoints"]] == [
        each["name"] for each in service["spec"]["ports"]
    ]
    assert monitor["metadata"]["labels"]["release"] == "prometheus"
    # The job of a ServiceMonitor's targets is the name of their Service.
    alerts = (CHART / "files/alerts.yaml").read_text().replace("__JOB__", service["metadata"]["name"])
    assert found["PrometheusRule"]["spec"]["groups"] == [
        *yaml.safe_load(alerts)["groups"],
        {"name": "mine", "rules": []},
    ]
    (dashboard,) = found["ConfigMap"]["data"].values()
    assert json.loads(dashboard) == json.loads((CHART / "files/dashboard.json").read_text())


def test_labels_that_select_cannot_be_taken_away(tmp_path: Path) -> None:
    found = with_values(VARIANTS["everything"], tmp_path)
    deployment = deployment_of(found)
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    assert labels["example.org/team"] == "red"
    assert deployment["spec"]["selector"]["matchLabels"].items() <= labels.items()


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"replicas": 2, "leaderElection": False}, "leaderElection to true, or replicas to 1"),
        ({"service": {"enabled": False}, "metrics": {"serviceMonitor": {"enabled": True}}}, "needs service.enabled"),
        ({"router": {"ingress": {"enabled": True}}}, "needs router.ingress.host"),
        ({"router": {"httpRoute": {"enabled": True}}}, "needs router.httpRoute.parentRefs"),
        ({"config": {"configMap": "", "allowedLabelDomains": ["a.example"]}}, "needs config.configMap"),
        ({"apiPriority": {"shares": 0}}, "shares"),
        ({"replica": 3}, "replica"),
        ({"image": {"tga": "x"}}, "tga"),
        ({"replicas": "two"}, "replicas"),
        ({"watchNamespaces": ["Red"]}, "watchNamespaces"),
        ({"watchNamespaces": ["red", "red"]}, "watchNamespaces"),
    ],
)  # fmt: skip
def test_wrong_values_are_refused(values: dict[str, Any], said: str, tmp_path: Path) -> None:
    file = tmp_path / "values.yaml"
    file.write_text(yaml.safe_dump(values))
    done = template("--values", str(file), home=tmp_path, check=False)
    assert done.returncode != 0
    assert said in done.stderr


def test_a_real_server_accepts_it(variant: list[dict[str, Any]], kubectl: Kubectl) -> None:
    for namespace in (NAMESPACE, "red"):
        kubectl.run("create", "namespace", namespace)
    served = [body for body in variant if body["kind"] not in FOREIGN]
    text = yaml.safe_dump_all(served)
    said = kubectl("apply", "--server-side", "--dry-run=server", "--validate=strict", "-f", "-", stdin=text)
    assert said.count("(server dry run)") == len(served)


def test_what_install_prints_can_be_applied_again(kubectl: Kubectl) -> None:
    text = sandpool("install", "--dry-run", "--namespace", "twice", "--image", "example.org/x:1").stdout
    count = len(documents(text))
    assert kubectl("apply", "--server-side", "-f", "-", stdin=text).count("serverside-applied") == count
    first = kubectl("get", "deployment,role,service", "--namespace=twice", "-o", "name").split()
    assert "deployment.apps/sandpool-controller" in first
    deployed = (
        "get",
        "deployment",
        "sandpool-controller",
        "--namespace=twice",
        "-o",
        "jsonpath={.metadata.generation}",
    )
    before = kubectl(*deployed)
    kubectl("apply", "--server-side", "-f", "-", stdin=text)
    assert kubectl(*deployed) == before


def test_the_pods_keep_the_strictest_standard(server: KubeServer, kubectl: Kubectl, tmp_path: Path) -> None:
    """Pod Security admission of the real server, on the pod that the Deployment makes."""
    text = sandpool("install", "--dry-run", "--namespace", "strict").stdout
    kubectl("apply", "--server-side", "-f", "-", stdin=text)
    deployment = deployment_of(documents(text))
    pods = "/api/v1/namespaces/strict/pods?dryRun=All"
    for deployment in (deployment_of(documents(text), "router"), deployment_of(documents(text))):
        pod = {"apiVersion": "v1", "kind": "Pod", **deployment["spec"]["template"]}
        pod["metadata"] = {"name": "one", **pod["metadata"]}
        assert server.request("POST", pods, pod)["metadata"]["name"] == "one"
    pod["spec"]["containers"][0]["securityContext"].pop("allowPrivilegeEscalation")
    with pytest.raises(OSError, match="403"):  # so the server does look
        server.request("POST", pods, pod)


def test_the_hardened_template_of_the_guide_keeps_the_strictest_standard(server: KubeServer, kubectl: Kubectl) -> None:
    blocks = re.findall(r"```yaml\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    (text,) = (block for block in blocks if "kind: SandboxTemplate" in block)
    kubectl("apply", "--server-side", "--dry-run=server", "--validate=strict", "-f", "-", stdin=text)
    template = msgspec.json.decode(msgspec.json.encode(yaml.safe_load(text)), type=SandboxTemplate)
    spec = secure_pod_spec(template.spec)
    assert spec.pop("runtimeClassName") == "gvisor"  # which this server does not have
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "hardened", "labels": labels}}
    kubectl("apply", "--server-side", "-f", "-", stdin=yaml.safe_dump(namespace))
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "one"}, "spec": spec}
    made = server.request("POST", "/api/v1/namespaces/hardened/pods?dryRun=All", pod)
    assert made["spec"]["automountServiceAccountToken"] is False
