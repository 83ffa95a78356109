"""ResourceQuotas: what is a valid one, and what each refuses.

A real server without its controller manager counts nothing by itself, so a case says what is used by writing the status. Ours counts what is there, and the cases say
the same by both.
"""

from __future__ import annotations

from typing import Any

from conformance.bodies import claim, core, pod
from conformance.rest.case import CLAIMS, CORE, MERGE, Case, Step

QUOTAS = f"{CORE}/resourcequotas"


def quota(hard: Any, **spec: Any) -> dict[str, Any]:
    return core("ResourceQuota", spec={"hard": hard, **spec})


def made(name: str, hard: Any, show: tuple[str, ...] = ("spec", "status", "metadata.generation"), **spec: Any) -> Case:
    return Case(name, f"POST {QUOTAS}", quota(hard, **spec), show=show)


def holding(hard: dict[str, str], used: dict[str, str], **spec: Any) -> tuple[Step, ...]:
    """A quota of which so much is used."""
    return (
        Step(f"POST {QUOTAS}", quota(hard, **spec)),
        Step(f"PATCH {QUOTAS}/a/status", {"status": {"hard": hard, "used": used}}, MERGE),
        *(Step(f"GET {QUOTAS}") for _ in range(40)),  # a server looks at quotas through a watch of its own
    )


def said(**amounts: str) -> list[dict[str, Any]]:
    return [{"name": "main", "image": "python", "resources": {"limits": amounts}}]


VALID = [
    made("quota: amounts", {"pods": "4", "requests.cpu": "1500m", "limits.memory": "1024Mi"}),
    made("quota: counts of kinds", {"count/sandboxclaims.extensions.agents.x-k8s.io": 3, "count/odd.example.com": 1}),
    made("quota: empty", {}),
    made("quota: unknown name", {"odd": "1"}),
    made("quota: storage by itself", {"storage": "1Gi"}),
    made("quota: bad name", {"a b": "1"}),
    made("quota: negative", {"pods": "-1"}),
    made("quota: part of a pod", {"pods": "1.5"}),
    made("quota: no quantity", {"pods": "many"}),
    made("quota: scope", {"pods": "4"}, scopes=["BestEffort"]),
    made("quota: unknown scope", {"pods": "4"}, scopes=["Odd"]),
    made("quota: scope does not go with it", {"secrets": "4"}, scopes=["Terminating"]),
    made("quota: best effort has no cpu", {"cpu": "4"}, scopes=["BestEffort"]),
    made("quota: opposite scopes", {"pods": "4"}, scopes=["BestEffort", "NotBestEffort"]),
    made(
        "quota: scope selector",
        {"pods": "4"},
        scopeSelector={"matchExpressions": [{"scopeName": "PriorityClass", "operator": "In", "values": ["high"]}]},
    ),
    made(
        "quota: scope selector without values",
        {"pods": "4"},
        scopeSelector={"matchExpressions": [{"scopeName": "PriorityClass", "operator": "In"}]},
    ),
    made(
        "quota: scope selector must exist",
        {"pods": "4"},
        scopeSelector={"matchExpressions": [{"scopeName": "BestEffort", "operator": "In", "values": ["a"]}]},
    ),
    Case(
        "quota: scopes stay",
        f"PATCH {QUOTAS}/a",
        {"spec": {"scopes": ["BestEffort"]}},
        MERGE,
        given=(Step(f"POST {QUOTAS}", quota({"pods": "1"})),),
    ),
    Case(
        "quota: raised",
        f"PATCH {QUOTAS}/a",
        {"spec": {"hard": {"pods": 5}}},
        MERGE,
        given=(Step(f"POST {QUOTAS}", quota({"pods": "1"})),),
        show=("spec",),
    ),
]
ENFORCED = [
    Case(
        "quota: no more pods",
        f"POST {CORE}/pods",
        pod("b"),
        given=(Step(f"POST {CORE}/pods", pod()), *holding({"pods": "1"}, {"pods": "1"})),
    ),
    Case(
        "quota: limits must be said",
        f"POST {CORE}/pods",
        pod("b"),
        given=holding({"limits.cpu": "1", "memory": "1Gi"}, {"limits.cpu": "0", "memory": "0"}),
    ),
    Case(
        "quota: too much of two",
        f"POST {CORE}/pods",
        pod("b", containers=said(cpu="2", memory="2Gi")),
        given=holding(
            {"pods": "3", "limits.cpu": "1500m", "requests.memory": "1Gi"},
            {"pods": "0", "limits.cpu": "0", "requests.memory": "0"},
        ),
    ),
    Case(
        "quota: as much as there is",
        f"POST {CORE}/pods",
        pod("b", containers=said(cpu="1")),
        given=holding({"pods": "1", "limits.cpu": "1"}, {"pods": "0", "limits.cpu": "0"}),
        show=("metadata.name",),
    ),
    Case(
        "quota: of claims",
        f"POST {CLAIMS}",
        claim("b"),
        given=(
            Step(f"POST {CLAIMS}", claim()),
            *holding(
                {"count/sandboxclaims.extensions.agents.x-k8s.io": "1"},
                {"count/sandboxclaims.extensions.agents.x-k8s.io": "1"},
            ),
        ),
    ),
    Case(
        "quota: asked before whether the name is free",
        f"POST {CORE}/pods",
        pod(),
        given=(Step(f"POST {CORE}/pods", pod()), *holding({"pods": "1"}, {"pods": "1"})),
    ),
    Case(
        "quota: a dry run is asked too",
        f"POST {CORE}/pods?dryRun=All",
        pod("b"),
        given=(Step(f"POST {CORE}/pods", pod()), *holding({"pods": "1"}, {"pods": "1"})),
    ),
    Case(
        "quota: storage",
        f"POST {CORE}/persistentvolumeclaims",
        core(
            "PersistentVolumeClaim",
            spec={"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "2Gi"}}},
        ),
        given=holding({"requests.storage": "1Gi"}, {"requests.storage": "0"}),
    ),
    Case(
        "quota: another scope",
        f"POST {CORE}/pods",
        pod("b"),
        given=holding({"pods": "0"}, {"pods": "0"}, scopes=["Terminating"]),
        show=("metadata.name",),
    ),
    Case(
        "quota: of its scope",
        f"POST {CORE}/pods",
        pod("b", activeDeadlineSeconds=60),
        given=holding({"pods": "0"}, {"pods": "0"}, scopes=["Terminating"]),
    ),
    Case(
        "quota: a service turns into one with ports of the node",
        f"PATCH {CORE}/services/a",
        {"spec": {"type": "NodePort"}},
        MERGE,
        given=(
            Step(f"POST {CORE}/services", core("Service", spec={"ports": [{"port": 80}]})),
            *holding({"services.nodeports": "0"}, {"services.nodeports": "0"}),
        ),
    ),
]
RUNTIMES = [
    Case("runtime class: unknown", f"POST {CORE}/pods", pod(runtimeClassName="nowhere")),
]
CASES = [*VALID, *ENFORCED, *RUNTIMES]
