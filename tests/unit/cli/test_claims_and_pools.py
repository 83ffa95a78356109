"""How claims and pools are, in a word."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from sandpool.cli.objects.ls import known, row
from sandpool.cli.objects.pool import progress, template_body
from sandpool.cli.objects.top import table, uses

NOW = datetime(2026, 5, 1, 12, 0, 0, tzinfo=UTC)


def claim(reason: str = "", status: str = "False", **metadata: Any) -> dict[str, Any]:
    conditions = [{"type": "Ready", "status": status, "reason": reason}] if reason else []
    return {
        "metadata": {"name": "mine", "namespace": "red", "creationTimestamp": "2026-05-01T11:59:00Z", **metadata},
        "spec": {"warmPoolRef": {"name": "python"}},
        "status": {"conditions": conditions, "sandbox": {"name": "python-x"}},
    }


@pytest.mark.parametrize(
    ("one", "word"),
    [
        (claim("DependenciesReady", "True"), "Ready"),
        (claim("SandboxSuspended"), "Suspended"),
        (claim("ClaimExpired"), "Failed"),
        (claim("DependenciesNotReady"), "Pending"),
        (claim(), "Pending"),
        (claim("DependenciesReady", "True", deletionTimestamp="2026-05-01T11:59:30Z"), "Terminating"),
    ],
)
def test_states(one: dict[str, Any], word: str) -> None:
    assert row(one, NOW)[1] == known(one)[0] == word


def test_a_row() -> None:
    one = claim("DependenciesReady", "True")
    assert row(one, NOW) == ("mine", "Ready", "python", "python-x", "60s", "never")
    one["spec"]["lifecycle"] = {"shutdownTime": "2026-05-01T12:05:00Z"}
    one["status"] = {}
    assert row(one, NOW, wide=True) == ("mine", "Pending", "python", "<none>", "60s", "in 5m", "")
    one["spec"]["lifecycle"] = {"shutdownTime": "2026-05-01T11:59:00Z"}
    assert row(one, NOW)[-1] == "60s ago"


def pool(wanted: int = 3, generation: int = 2, strategy: str = "", **status: int) -> dict[str, Any]:
    return {
        "metadata": {"name": "python", "generation": generation},
        "spec": {"replicas": wanted, "updateStrategy": {"type": strategy}},
        "status": {"observedGeneration": 2, **status},
    }


@pytest.mark.parametrize(
    ("one", "done", "text"),
    [
        (pool(replicas=3, readyReplicas=3, updatedReplicas=3), True, "pool python: 3 of 3 ready"),
        (pool(generation=3, replicas=3, readyReplicas=3), False, "has not observed the latest change"),
        (pool(replicas=3, readyReplicas=1), False, "1 of 3 ready"),
        (pool(replicas=3, readyReplicas=3, updatedReplicas=1), True, "2 of an older template, which stay"),
        (pool(strategy="Recreate", replicas=3, readyReplicas=3, updatedReplicas=1), False, "1 of the current template"),
        (
            pool(strategy="RollingUpdate", replicas=3, readyReplicas=3, updatedReplicas=3, updatedReadyReplicas=3),
            True,
            "3 of 3 ready",
        ),
        (pool(wanted=1, replicas=3, readyReplicas=3), False, "2 too many"),
        (pool(wanted=0, replicas=0), True, "0 of 0 ready"),
    ],
)
def test_how_far_a_pool_has_come(one: dict[str, Any], done: bool, text: str) -> None:
    found = progress(one)
    assert (found.done, text in found.text) == (done, True), found


def test_trouble_of_a_pool_is_told() -> None:
    one = pool(replicas=0)
    one["status"]["conditions"] = [
        {"type": "Progressing", "status": "False", "reason": "CreationFailed", "message": "quota"}
    ]
    assert "CreationFailed: quota" in progress(one).text


def test_a_template_of_an_image_is_hardened() -> None:
    spec = template_body("tools", "registry.example.com/tools:1", ("serve",))["spec"]["podTemplate"]["spec"]
    (container,) = spec["containers"]
    assert container["image"] == "registry.example.com/tools:1"
    assert container["command"] == ["serve"]
    assert spec["securityContext"]["runAsNonRoot"]
    assert not container["securityContext"]["allowPrivilegeEscalation"]
    assert template_body("tools", "x")["spec"]["podTemplate"]["spec"]["containers"][0]["command"] == [
        "sleep",
        "infinity",
    ]


def test_use_is_told_of_sandboxes_only() -> None:
    def measured(name: str, *containers: dict[str, str]) -> dict[str, Any]:
        return {"metadata": {"namespace": "red", "name": name}, "containers": [{"usage": one} for one in containers]}

    boxes = [{"metadata": {"namespace": "red", "name": "python-x"}}]
    pods = [
        measured("python-x", {"cpu": "150m", "memory": "10Mi"}, {"cpu": "50m", "memory": "2048Ki"}),
        measured("something-else", {"cpu": "1", "memory": "1Gi"}),
    ]
    found = uses(pods, boxes, [claim("DependenciesReady", "True")])
    assert [(one.sandbox, one.claim, one.cpu, one.memory) for one in found] == [("python-x", "mine", 0.2, 12 << 20)]
    assert table(found, namespaces=False, headers=True, color=False).splitlines() == [
        "SANDBOX    CLAIM   CPU(cores)   MEMORY(bytes)",
        "python-x   mine    200m         12Mi",
    ]
