"""What the chart can add: configuration, volumes, the router's monitor, policy and ways in, and a priority level at the API server."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from sandpool.cli.controller_flags import DOMAINS_FILE, MemberFlags
from sandpool.install.priority import priority
from support.kube.helm import CHART, by_identity, rendered

pytestmark = pytest.mark.kube
ROUTER_GUIDE = CHART.parents[2] / "docs/how-to/router-on-kubernetes.md"
NAMESPACE = "agent-sandbox-system"
Body = dict[str, Any]


def made(values: Body, home: Path) -> dict[tuple[str, str, str], Body]:
    file = home / "values.yaml"
    file.write_text(yaml.safe_dump(values))
    return by_identity(rendered("--values", str(file), home=home))


def pod(found: dict[tuple[str, str, str], Body], name: str) -> Body:
    body: Body = found["Deployment", NAMESPACE, name]["spec"]["template"]
    return body


def mounted(spec: Body) -> dict[str, Body]:
    """By the place where the container has it: the volume."""
    volumes = {volume["name"]: volume for volume in spec.get("volumes", ())}
    (container,) = spec["containers"]
    return {mount["mountPath"]: volumes[mount["name"]] for mount in container.get("volumeMounts", ())}


def test_the_controller_has_the_configuration_that_it_reads(tmp_path: Path) -> None:
    values = {"config": {"configMap": "settings", "allowedLabelDomains": ["team.example.org", "sandbox.users.io"]}}
    found = made(values, tmp_path)
    template = pod(found, "sandpool-controller")
    volume = mounted(template["spec"])[str(DOMAINS_FILE.parent)]
    (source, entry) = (found["ConfigMap", NAMESPACE, volume["configMap"]["name"]]["data"], DOMAINS_FILE.name)
    file = tmp_path / entry
    file.write_text(source[entry])
    assert MemberFlags().label_domains(file) == ("team.example.org", "sandbox.users.io")
    values["config"]["allowedLabelDomains"] = ["other.example.org"]
    changed = pod(made(values, tmp_path), "sandpool-controller")
    assert changed["metadata"]["annotations"] != template["metadata"]["annotations"], "it is read when a pod starts"


def test_by_default_the_configuration_is_the_contracts_and_may_be_missing(tmp_path: Path) -> None:
    found = made({}, tmp_path)
    volume = mounted(pod(found, "sandpool-controller")["spec"])[str(DOMAINS_FILE.parent)]
    assert volume["configMap"] == {"name": "agent-sandbox-config", "optional": True}
    assert not [kind for kind, *_ in found if kind == "ConfigMap"]


def test_volumes_and_variables_of_ones_own(tmp_path: Path) -> None:
    volume, mount = {"name": "more", "emptyDir": {}}, {"name": "more", "mountPath": "/more"}
    mine = {"extraVolumes": [volume], "extraVolumeMounts": [mount]}
    variable = {"name": "LANG", "value": "C.UTF-8"}
    common = {"name": "TZ", "value": "UTC"}
    found = made({**mine, "extraEnv": [common], "router": {**mine, "extraEnv": [variable]}}, tmp_path)
    specs = [pod(found, name)["spec"] for name in ("sandpool-controller", "sandpool-router")]
    assert [mounted(spec)["/more"] for spec in specs] == [volume, volume]
    assert [spec["containers"][0]["env"] for spec in specs] == [[common], [common, variable]]


def test_prometheus_finds_the_router_too(tmp_path: Path) -> None:
    found = made({"metrics": {"serviceMonitor": {"enabled": True}}}, tmp_path)
    monitor = found["ServiceMonitor", NAMESPACE, "sandpool-router"]["spec"]
    service = found["Service", NAMESPACE, "sandbox-router-svc"]
    assert monitor["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
    assert monitor["endpoints"][0]["port"] in {port["name"] for port in service["spec"]["ports"]}
    others = found["Service", NAMESPACE, "sandpool-controller"]["metadata"]["labels"].items()
    assert not monitor["selector"]["matchLabels"].items() <= others
    without = made({"metrics": {"serviceMonitor": {"enabled": True}}, "router": {"enabled": False}}, tmp_path)
    assert ("ServiceMonitor", NAMESPACE, "sandpool-router") not in without


@pytest.mark.parametrize(
    ("tls", "more", "expected"),
    [
        ({"enabled": True}, {}, {"insecureSkipVerify": True}),
        (
            {"enabled": True, "secret": "metrics"},
            {},
            {
                "ca": {"secret": {"name": "metrics", "key": "ca.crt"}},
                "serverName": f"sandbox-router-svc.{NAMESPACE}.svc",
            },
        ),
        (
            {"enabled": True, "secret": "metrics"},
            {"tlsConfig": {"serverName": "x.example.org"}},
            {"serverName": "x.example.org"},
        ),
    ],
)
def test_metrics_over_https(tls: Body, more: Body, expected: Body, tmp_path: Path) -> None:
    found = made({"metrics": {"tls": tls, "serviceMonitor": {"enabled": True, **more}}}, tmp_path)
    (endpoint,) = found["ServiceMonitor", NAMESPACE, "sandpool-router"]["spec"]["endpoints"]
    assert (endpoint["scheme"], endpoint["tlsConfig"]) == ("https", expected)
    for name in ("sandpool-controller", "sandpool-router"):
        spec = pod(found, name)["spec"]
        arguments = spec["containers"][0]["args"]
        assert "--metrics-secure-serving" in arguments
        folders = [each.partition("=")[2] for each in arguments if each.startswith("--metrics-cert-dir=")]
        assert [mounted(spec)[folder]["secret"]["secretName"] for folder in folders] == (
            [tls["secret"]] if "secret" in tls else []
        )


def test_the_router_has_a_policy_of_its_own_by_default(tmp_path: Path) -> None:
    found = made({}, tmp_path)
    spec = found["NetworkPolicy", NAMESPACE, "sandpool-router"]["spec"]
    labels = pod(found, "sandpool-router")["metadata"]["labels"]
    assert spec["podSelector"]["matchLabels"].items() <= labels.items()
    others = pod(found, "sandpool-controller")["metadata"]["labels"]
    assert not spec["podSelector"]["matchLabels"].items() <= others.items()
    assert spec["policyTypes"] == ["Ingress", "Egress"]
    let_in = {port["port"] for rule in spec["ingress"] for port in rule["ports"]}
    container = pod(found, "sandpool-router")["spec"]["containers"][0]
    assert let_in == {port["containerPort"] for port in container["ports"]}
    assert all("ports" in rule or "to" in rule for rule in spec["egress"]), "no rule opens everything"
    for values in ({"enabled": False}, {"namespace": "edge"}, {"networkPolicy": {"enabled": False}}):
        assert ("NetworkPolicy", NAMESPACE, "sandpool-router") not in made({"router": values}, tmp_path)


def test_ways_in_from_outside(tmp_path: Path) -> None:
    ingress = {"enabled": True, "className": "nginx", "host": "boxes.example.org", "tlsSecret": "boxes"}
    route = {
        "enabled": True,
        "parentRefs": [{"name": "gateway", "namespace": "edge"}],
        "hostnames": ["boxes.example.org"],
    }
    found = made({"router": {"ingress": ingress, "httpRoute": route}}, tmp_path)
    ports = {port["name"]: port["port"] for port in found["Service", NAMESPACE, "sandbox-router-svc"]["spec"]["ports"]}
    spec = found["Ingress", NAMESPACE, "sandpool-router"]["spec"]
    (path,) = spec["rules"][0]["http"]["paths"]
    assert path["backend"]["service"]["name"] == "sandbox-router-svc"
    assert path["backend"]["service"]["port"]["name"] in ports
    assert spec["tls"] == [{"hosts": ["boxes.example.org"], "secretName": "boxes"}]
    spec = found["HTTPRoute", NAMESPACE, "sandpool-router"]["spec"]
    (rule,) = spec["rules"]
    assert rule["backendRefs"] == [{"name": "sandbox-router-svc", "port": ports["http"]}]
    assert rule["timeouts"] == {"request": "0s"}, "a terminal lasts as long as it is used"
    assert (spec["parentRefs"], spec["hostnames"]) == (route["parentRefs"], route["hostnames"])


def test_the_values_of_the_guide_make_what_it_says(tmp_path: Path) -> None:
    blocks = re.findall(r"```yaml\n(.*?)```", ROUTER_GUIDE.read_text(), re.DOTALL)
    kinds = {"httpRoute": "HTTPRoute", "ingress": "Ingress"}
    for block, (value, kind) in zip(blocks, kinds.items(), strict=True):
        values = yaml.safe_load(block)
        assert value in values["router"]
        assert (kind, NAMESPACE, "sandpool-router") in made(values, tmp_path)


def test_a_priority_level_is_what_the_component_has(tmp_path: Path) -> None:
    found = made({"apiPriority": {"enabled": True}}, tmp_path)
    ours = by_identity(priority())
    for identity, body in ours.items():
        assert found[identity]["spec"] == body["spec"], identity
    level = found["PriorityLevelConfiguration", "", "sandpool-controller"]
    assert (
        made({"apiPriority": {"enabled": True, "shares": 7}}, tmp_path)[
            "PriorityLevelConfiguration", "", level["metadata"]["name"]
        ]["spec"]["limited"]["nominalConcurrencyShares"]
        == 7
    )
    alone = made({"apiPriority": {"enabled": True}, "router": {"enabled": False}}, tmp_path)
    (rule,) = alone["FlowSchema", "", "sandpool-controller"]["spec"]["rules"]
    assert [one["serviceAccount"]["name"] for one in rule["subjects"]] == ["sandpool-controller"]
