"""Writes what deploy/ and its reference pages repeat from the code: CRDs, permissions, the kustomization, the chart's schema.

    python tools/deploy_files.py [--check]

Each is made from one source: the CRDs and the rules from `sandpool`, the schema and the page from the chart's values.yaml.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from sandpool.install import rules
from sandpool.install.objects import objects
from sandpool.install.priority import priority
from sandpool.install.router import router
from sandpool.install.rules import RBAC
from sandpool.install.settings import Settings
from sandpool.model.crds import crds, to_yaml
from sandpool.model.names import LABEL

ROOT = Path(__file__).parent.parent
CHART = ROOT / "deploy/helm/sandpool"
FREE_FORM = {
    "resources", "podSecurityContext", "securityContext", "podAnnotations", "podLabels", "nodeSelector", "affinity",
    "serviceAccount.annotations", "metrics.serviceMonitor.labels", "metrics.prometheusRule.labels",
    "metrics.serviceMonitor.tlsConfig", "metrics.dashboard.labels", "router.ingress.annotations", "router.httpRoute.annotations",
}  # fmt: skip
"""Values whose keys are the user's, not ours."""
STRICTER: dict[str, dict[str, Any]] = {
    "topologySpreadConstraints": {"type": ["array", "null"]},
    "watchNamespaces": {"items": {"type": "string", "pattern": f"^{LABEL}$", "maxLength": 63}, "uniqueItems": True},
    "logFormat": {"enum": ["json", "text"]},
    "image.pullPolicy": {"enum": ["Always", "IfNotPresent", "Never"]},
    "image.digest": {"pattern": "^(sha256:[0-9a-f]{64})?$"},
    "replicas": {"minimum": 0},
    "router.replicas": {"minimum": 0},
    "apiPriority.shares": {"minimum": 1},
    "config.allowedLabelDomains": {"items": {"type": "string", "minLength": 1}, "uniqueItems": True},
    "podDisruptionBudget.maxUnavailable": {"type": ["integer", "string"]},
}
TYPES = {bool: "boolean", int: "integer", str: "string", list: "array", dict: "object"}


def files() -> dict[Path, str]:
    """Every generated file with its content."""
    values = CHART.joinpath("values.yaml").read_text()
    permissions = {
        part: [body for body in made if body["apiVersion"].startswith(RBAC)]
        for part, made in (("controller", objects(Settings(router=False))), ("router", router(Settings())))
    }
    return {
        **{
            directory / f"{one['metadata']['name']}.yaml": to_yaml(one)
            for one in crds()
            for directory in (ROOT / "deploy/crds", CHART / "crds")
        },
        CHART / "files/rules.yaml": _rules(),
        CHART / "values.schema.json": json.dumps(_schema(values), indent=2) + "\n",
        **{ROOT / f"deploy/rbac/{part}.yaml": _stream(bodies) for part, bodies in permissions.items()},
        **_kustomization(),
        ROOT / "docs/reference/helm-values.md": _page(values),
        ROOT / "docs/reference/permissions.md": _permissions(),
    }


def _kustomization() -> dict[Path, str]:
    """The same objects for users of neither Helm nor `sandpool install`; optional ones as a component."""
    directory, made = (
        ROOT / "deploy/kustomize",
        "# Made by tools/deploy_files.py; change it by a kustomization of your own.\n",
    )
    definitions = [f"crds/{one['metadata']['name']}.yaml" for one in crds()]
    bodies = [body for body in objects(Settings()) if body["kind"] != "CustomResourceDefinition"]
    kustomize = "kustomize.config.k8s.io"
    base = {
        "apiVersion": f"{kustomize}/v1beta1",
        "kind": "Kustomization",
        "resources": [*definitions, "kustomize/installation.yaml"],
    }
    component = {"apiVersion": f"{kustomize}/v1alpha1", "kind": "Component", "resources": ["priority.yaml"]}
    return {
        ROOT / "deploy/kustomization.yaml": made + to_yaml(base),
        directory / "installation.yaml": made + _stream(bodies),
        directory / "api-priority/kustomization.yaml": made + to_yaml(component),
        directory / "api-priority/priority.yaml": made + _stream(priority()),
    }


def _stream(bodies: list[dict[str, Any]]) -> str:
    return "".join(f"---\n{to_yaml(body)}" for body in bodies)


def _rules() -> str:
    scopes = {
        "core": rules.CORE,
        "extensions": rules.EXTENSIONS,
        "definitions": rules.DEFINITIONS,
        "places": rules.PLACES,
        "own": rules.OWN,
        "storage": rules.STORAGE,
        "router": rules.ROUTER_NAMESPACED,
        "routerActivity": rules.ROUTER_ACTIVITY,
        "routerCluster": rules.ROUTER_CLUSTER,
        "users": rules.USERS,
    }
    head = "# Made by tools/deploy_files.py from src/sandpool/install/rules.py, which also says why.\n"
    return head + to_yaml({scope: [rule.body() for rule in table] for scope, table in scopes.items()})


def _schema(values: str) -> dict[str, Any]:
    schema = _of(yaml.safe_load(values), "")
    schema["properties"]["global"] = {"type": "object"}  # Helm's own
    return {"$schema": "http://json-schema.org/draft-07/schema#", **schema}


def _of(value: Any, path: str) -> dict[str, Any]:
    if isinstance(value, dict) and path not in FREE_FORM:
        inner = {name: _of(child, f"{path}.{name}".lstrip(".")) for name, child in value.items()}
        return {"type": "object", "additionalProperties": False, "properties": inner}
    kind: Any = ["number", "null"] if value is None else TYPES[type(value)]
    return {"type": kind, **STRICTER.get(path, {})}


def documented(values: str) -> Iterator[tuple[str, str, str]]:
    """Path, default and text of each value: the comment lines above it."""
    known = yaml.safe_load(values)
    said: list[str] = []
    place: list[tuple[int, str]] = []
    for line in values.splitlines():
        if match := re.match(r"( *)# ?(.*)", line):
            said.append(match[2])
        elif match := re.match(r"( *)([A-Za-z]+):", line):
            indent = len(match[1])
            place = [(depth, name) for depth, name in place if depth < indent] + [(indent, match[2])]
            path = ".".join(name for _, name in place)
            if said:
                yield path, json.dumps(_at(known, path)), " ".join(said)
            said = []
        else:
            said = []


def _at(known: Any, path: str) -> Any:
    for name in path.split("."):
        known = known[name]
    return known


def _page(values: str) -> str:
    head = (
        "# Values of the Helm chart\n\n"
        "The chart is in `deploy/helm/sandpool`; [Install on Kubernetes](../how-to/install-on-kubernetes.md) shows how to use it. "
        "Helm refuses unknown\nvalues and values of a wrong type (`values.schema.json`). This page is generated from `values.yaml`.\n\n"
        "| value | default | meaning |\n|---|---|---|\n"
    )
    return head + "".join(f"| `{path}` | `{default}` | {text} |\n" for path, default, text in documented(values))


def _permissions() -> str:
    head = (
        "# Permissions of the controller and of the router\n\n"
        "Every permission, and what it is for. `sandpool install` and the Helm chart grant exactly these; tests compare them "
        "with\nevery call in the code. This page is generated from `install/rules.py`.\n"
    )
    scopes = (
        ("In all namespaces, or in each watched namespace", rules.CORE),
        ("In the same namespaces, unless `--no-extensions` is set", rules.EXTENSIONS),
        ("Cluster-wide", rules.CLUSTER),
        ("In the controller's own namespace", rules.OWN),
        ("Only with `rbac.adoptStorage` of the Helm chart", rules.STORAGE),
        ("The router: in all namespaces, or in each namespace that it serves", rules.ROUTER_NAMESPACED),
        ("The router: in the same namespaces, unless `--no-activity` is set", rules.ROUTER_ACTIVITY),
        ("The router: cluster-wide", rules.ROUTER_CLUSTER),
        ("Users of sandboxes: aggregated to the ClusterRole `edit`", rules.USERS),
    )
    return head + "".join(f"\n## {title}\n\n{_table(table)}" for title, table in scopes)


def _table(table: tuple[rules.Rule, ...]) -> str:
    lines = []
    for rule in table:
        named = f", only {', '.join(f'`{name}`' for name in rule.names)}" if rule.names else ""
        group = f" ({rule.group})" if rule.group else ""
        lines.append(f"| `{rule.resource}`{group}{named} | {' '.join(rule.verbs)} | {rule.why} |\n")
    return "| resource | verbs | to |\n|---|---|---|\n" + "".join(lines)


def main() -> None:
    stale = {path: text for path, text in files().items() if not path.exists() or path.read_text() != text}
    if "--check" in sys.argv:
        raise SystemExit("".join(f"{path} differs: run tools/deploy_files.py\n" for path in stale) or 0)
    for path, text in stale.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        print(path.relative_to(ROOT))


if __name__ == "__main__":
    main()
