"""Quotas as an operator sets them and a tenant meets them, by kubectl and over real sockets."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from integration.kubectl.test_access import bound
from support.api.manifests import CLAIM
from support.kube.kubectl import Done, Kubectl
from support.product.cluster import Cluster

COUNT = "count/sandboxclaims.extensions.agents.x-k8s.io"


def pod(name: str, limits: str = "") -> str:
    resources = f', "resources": {{"limits": {{{limits}}}}}' if limits else ""
    return (
        f'{{"apiVersion": "v1", "kind": "Pod", "metadata": {{"name": "{name}"}}, '
        f'"spec": {{"containers": [{{"name": "main", "image": "python"{resources}}}]}}}}'
    )


def used(kubectl: Kubectl, name: str) -> dict[str, str]:
    found: dict[str, str] = json.loads(kubectl("get", "quota", name, "-o", "json"))["status"].get("used", {})
    return found


def test_an_operator_sets_one_and_sees_what_is_used(kubectl: Kubectl) -> None:
    kubectl("create", "quota", "few", "--hard=pods=2,limits.cpu=1,secrets=3")
    kubectl("create", "-f", "-", stdin=pod("a", '"cpu": "300m"'))
    kubectl("wait", "quota/few", "--for=jsonpath={.status.used.pods}=1")
    assert used(kubectl, "few") == {"limits.cpu": "300m", "pods": "1", "secrets": "0"}
    table = kubectl("get", "resourcequotas")
    assert table.splitlines()[0].split() == ["NAME", "REQUEST", "LIMIT", "AGE"]
    assert "pods: 1/2, secrets: 0/3" in table
    assert "limits.cpu: 300m/1" in table
    described = kubectl("describe", "quota", "few")
    assert [line.split() for line in described.splitlines() if line.startswith("limits.cpu")] == [
        ["limits.cpu", "300m", "1"]
    ]
    assert "few" in kubectl("describe", "namespace", kubectl.namespace)
    refused = kubectl.run("create", "-f", "-", stdin=pod("b"))
    assert 'pods "b" is forbidden: failed quota: few: must specify limits.cpu for: main' in refused.err
    refused = kubectl.run("create", "-f", "-", stdin=pod("b", '"cpu": "800m"'))
    assert (
        'pods "b" is forbidden: exceeded quota: few, requested: limits.cpu=800m, used: limits.cpu=300m, limited: limits.cpu=1'
    ) in refused.err
    kubectl("delete", "pod", "a", "--wait=true")
    kubectl("create", "-f", "-", stdin=pod("b", '"cpu": "800m"'))
    assert "resourcequotas" in kubectl("api-resources")
    assert "hard" in kubectl("explain", "resourcequota.spec")


def test_a_tenant_reads_it_and_cannot_change_it(cluster: Cluster, kubectl: Kubectl, tmp_path: Path) -> None:
    tenant = bound(cluster, kubectl, tmp_path)
    kubectl("create", "quota", "few", f"--hard={COUNT}=1")
    assert "few" in tenant("get", "quota")
    changes = (
        ("create", "quota", "more", "--hard=pods=99"),
        ("delete", "quota", "few"),
        ("delete", "quota", "--all"),
        ("patch", "quota", "few", "--type=merge", f'--patch={{"spec": {{"hard": {{"{COUNT}": "99"}}}}}}'),
        ("patch", "quota", "few", "--subresource=status", "--type=merge", '--patch={"status": {"used": {}}}'),
    )
    for change in changes:
        assert "is forbidden: User" in tenant.run(*change).err, change
    tenant("create", "-f", "-", stdin=CLAIM)
    refused = tenant.run("create", "-f", "-", stdin=CLAIM.replace("name: mine", "name: another"))
    assert f"exceeded quota: few, requested: {COUNT}=1, used: {COUNT}=1, limited: {COUNT}=1" in refused.err
    for verb, wanted in (("get", "yes"), ("list", "yes"), ("update", "no"), ("create", "no")):
        assert tenant.run("auth", "can-i", verb, "resourcequotas").out.strip() == wanted
    listed = next(line for line in tenant("auth", "can-i", "--list").splitlines() if line.startswith("resourcequotas "))
    assert listed.split()[-1] == "watch]"


def test_a_tenant_cannot_say_that_its_pod_has_ended(cluster: Cluster, kubectl: Kubectl, tmp_path: Path) -> None:
    tenant = bound(cluster, kubectl, tmp_path)
    kubectl("create", "quota", "few", "--hard=pods=1")
    tenant("create", "-f", "-", stdin=pod("a"))
    lie = ("patch", "pod", "a", "--subresource=status", "--type=merge", '--patch={"status": {"phase": "Succeeded"}}')
    assert 'cannot patch resource "pods/status"' in tenant.run(*lie).err
    assert "exceeded quota: few" in tenant.run("create", "-f", "-", stdin=pod("b")).err


def test_many_at_once_never_take_more_than_there_is(kubectl: Kubectl) -> None:
    kubectl("create", "quota", "few", "--hard=pods=3")

    def attempt(number: int) -> Done:
        return kubectl.run("create", "-f", "-", stdin=pod(f"p{number}"))

    with ThreadPoolExecutor(6) as several:
        answers = list(several.map(attempt, range(12)))
    assert sum(answer.code == 0 for answer in answers) == 3
    assert all("exceeded quota: few" in answer.err for answer in answers if answer.code)
    kubectl("wait", "quota/few", "--for=jsonpath={.status.used.pods}=3")
