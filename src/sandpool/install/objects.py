"""All objects of an installation, in the order in which they can be applied. The Helm chart renders the same with its defaults."""

from __future__ import annotations

from typing import Any

from sandpool.install.deployment import HEALTH_PORT, METRICS_PORT, deployment
from sandpool.install.router import router
from sandpool.install.rules import access
from sandpool.install.settings import CONTROLLER, SELECTOR, Settings, labelled
from sandpool.model.crds import crds, to_yaml


def objects(settings: Settings) -> list[dict[str, Any]]:
    """Everything but the watched namespaces, which must exist already."""
    return [
        _namespace(settings),
        *crds(),
        _account(settings),
        *access(settings),
        _service(settings),
        deployment(settings),
        _disruption_budget(settings),
        _network_policy(settings),
        *(router(settings) if settings.router else ()),
    ]


def manifest(settings: Settings) -> str:
    """As one YAML stream, for `kubectl apply -f -`."""
    return "".join(f"---\n{to_yaml(body)}" for body in objects(settings))


def _namespace(settings: Settings) -> dict[str, Any]:
    metadata = labelled(settings.namespace)
    for mode in ("enforce", "warn"):
        metadata["labels"][f"pod-security.kubernetes.io/{mode}"] = "restricted"
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}


def _account(settings: Settings) -> dict[str, Any]:
    metadata = labelled(CONTROLLER, settings.namespace)
    return {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata, "automountServiceAccountToken": False}


def _service(settings: Settings) -> dict[str, Any]:
    port = {"name": "metrics", "port": METRICS_PORT, "targetPort": "metrics", "protocol": "TCP"}
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": labelled(CONTROLLER, settings.namespace),
        "spec": {"type": "ClusterIP", "selector": dict(SELECTOR), "ports": [port]},
    }


def _disruption_budget(settings: Settings) -> dict[str, Any]:
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": labelled(CONTROLLER, settings.namespace),
        "spec": {"maxUnavailable": 1, "selector": {"matchLabels": dict(SELECTOR)}},
    }


def _network_policy(settings: Settings) -> dict[str, Any]:
    """Ingress: only metrics and health. Egress is open, because the address of the API server differs from cluster to cluster; the chart can
    restrict it."""
    ports = [{"protocol": "TCP", "port": port} for port in (METRICS_PORT, HEALTH_PORT)]
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": labelled(CONTROLLER, settings.namespace),
        "spec": {
            "podSelector": {"matchLabels": dict(SELECTOR)},
            "policyTypes": ["Ingress"],
            "ingress": [{"ports": ports}],
        },
    }
