"""The same question to kubectl and to sandpool: the same answer, to the character where the format is kubectl's."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from sandpool.cli.main import run
from support.kube.kubectl import Kubectl
from support.product.cluster import Cluster, running_cluster

pytestmark = pytest.mark.kubectl

CLAIMS = "/apis/extensions.agents.x-k8s.io/v1beta1/namespaces/default/sandboxclaims"

TEMPLATES = [
    "{.items[*].metadata.name}",
    '{range .items[*]}{.metadata.name}{"\\t"}{.status.sandbox.name}{"\\n"}{end}',
    '{.items[?(@.metadata.name=="one")].spec}',
    "{.items[0].metadata.labels}",
    "{.items[0].metadata.labels.example\\.com/a}",
    "{.items[0].metadata.labels['team','example.com/a']}",
    "{.items[*]['metadata.name','kind']}",
    "{..warmPoolRef.name}",
    "{.items[0].absent}",
    "{.items[0:1].metadata.name}",
    "{.items[-1:].metadata.name}",
    '{.items[*].status.conditions[?(@.type=="Ready")].status}',
    "{.kind}/{.items[0].kind}",
]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with running_cluster(
        tmp_path_factory.mktemp("agrees") / "data", "--backend", "hollow", "--pool", "python=2"
    ) as found:
        assert run(["pool", "rollout", "status", "python", *found.flag]) == 0
        assert (
            run(["claim", "python", "--name", "one", "--label", "team=red", "--label", "example.com/a=b", *found.flag])
            == 0
        )
        assert run(["claim", "python", "--name", "two", *found.flag]) == 0
        assert run(["pool", "rollout", "status", "python", *found.flag]) == 0
        while not all(map(settled, found.request("GET", f"{CLAIMS}?limit=10")["items"])):
            time.sleep(0.05)
        yield found


def settled(claim: dict[str, Any]) -> bool:
    """When it was first Ready is written a moment later: nothing must change between two questions."""
    return "agents.x-k8s.io/claim-first-ready-at" in claim["metadata"].get("annotations", {})


class Both:
    def __init__(self, cluster: Cluster, home: Path, capfd: pytest.CaptureFixture[str]) -> None:
        self.kubectl = Kubectl(cluster.data_dir / "kubeconfig", home)
        self.flag, self.capfd = cluster.flag, capfd

    def __call__(self, *arguments: str) -> tuple[str, str]:
        self.capfd.readouterr()
        assert run([*arguments, *self.flag]) == 0
        ours = self.capfd.readouterr().out
        return ours, self.kubectl(*arguments)


@pytest.fixture
def both(cluster: Cluster, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> Both:
    return Both(cluster, tmp_path, capfd)


def without_ages(table: str) -> list[list[str]]:
    """Seconds may pass between the two."""
    lines = [line.split() for line in table.splitlines()]
    at = lines[0].index("AGE")
    return [line[:at] + line[at + 1 :] for line in lines]


@pytest.mark.parametrize(
    "arguments",
    [
        ("get", "sandboxclaims"),
        ("get", "sandboxclaims", "-o", "wide"),
        ("get", "sandboxclaims", "-A"),
        ("get", "sandboxclaim", "one"),
        ("get", "sandboxclaims", "-l", "team=red"),
        ("get", "sandboxwarmpools", "-o", "wide"),
        ("get", "sandboxes"),
        ("get", "swp"),
        ("get", "nodes"),
    ],
)
def test_tables(both: Both, arguments: tuple[str, ...]) -> None:
    ours, theirs = both(*arguments)
    assert without_ages(ours) == without_ages(theirs)


def test_columns_stand_where_kubectl_puts_them(both: Both) -> None:
    ours, theirs = both("get", "sandboxclaims")
    assert ours.splitlines()[0] == theirs.splitlines()[0]


@pytest.mark.parametrize("what", [("sandboxclaims",), ("sandboxclaim", "one"), ("sandboxclaim", "one", "two")])
@pytest.mark.parametrize("format", ["json", "yaml", "name"])
def test_documents(both: Both, what: tuple[str, ...], format: str) -> None:
    ours, theirs = both("get", *what, "-o", format)
    if format == "json":
        assert ours == theirs
        assert json.loads(ours) == json.loads(theirs)
    elif format == "yaml":
        assert yaml.safe_load(ours) == yaml.safe_load(theirs)
    else:
        assert ours == theirs


@pytest.mark.parametrize("template", TEMPLATES)
def test_jsonpath(both: Both, template: str) -> None:
    ours, theirs = both("get", "sandboxclaims", "-o", f"jsonpath={template}")
    if ours.startswith("{"):
        assert json.loads(ours) == json.loads(theirs)
    else:
        assert ours == theirs


def test_waiting(both: Both) -> None:
    for question in ("condition=Ready", "jsonpath={.spec.warmPoolRef.name}=python", "jsonpath={.status.sandbox.name}"):
        both("wait", "sandboxclaim/one", f"--for={question}")
