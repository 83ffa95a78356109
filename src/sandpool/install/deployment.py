"""The controller's Deployment: two replicas, one of them active, as an ordinary user, with minimal privileges."""

from __future__ import annotations

from typing import Any

from sandpool.install.settings import CONTROLLER, LABELS, SELECTOR, Settings, labelled
from sandpool.model.container_defaults import STANDARD_LIMITS, STANDARD_REQUESTS

METRICS_PORT = 8080
HEALTH_PORT = 8081
CONFIGURATION = "agent-sandbox-config"
"""An optional ConfigMap with settings that are read from files (`allowed-label-domains`). Its name is the contract's."""
CONFIGURATION_FOLDER = "/etc/sandbox-config"
USER = 65532
ORDINARY: dict[str, Any] = {
    "runAsNonRoot": True,
    "runAsUser": USER,
    "runAsGroup": USER,
    "fsGroup": USER,
    "seccompProfile": {"type": "RuntimeDefault"},
}
CONFINED: dict[str, Any] = {
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "capabilities": {"drop": ["ALL"]},
}


def deployment(settings: Settings) -> dict[str, Any]:
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": labelled(CONTROLLER, settings.namespace),
        "spec": {
            "replicas": 2,
            "selector": {"matchLabels": dict(SELECTOR)},
            # The new replica is ready to take over before the old one releases the lease.
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}},
            "template": {"metadata": {"labels": dict(LABELS)}, "spec": _pod(settings)},
        },
    }


def _pod(settings: Settings) -> dict[str, Any]:
    return {
        "serviceAccountName": CONTROLLER,
        "automountServiceAccountToken": True,
        "terminationGracePeriodSeconds": 30,
        "securityContext": dict(ORDINARY),
        "topologySpreadConstraints": spread(SELECTOR),
        "containers": [_container(settings)],
        "volumes": [{"name": "config", "configMap": {"name": CONFIGURATION, "optional": True}}],
    }


def _container(settings: Settings) -> dict[str, Any]:
    return {
        "name": "controller",
        "image": settings.image,
        "imagePullPolicy": "IfNotPresent",
        "args": arguments(settings),
        "ports": [
            {"name": "metrics", "containerPort": METRICS_PORT, "protocol": "TCP"},
            {"name": "health", "containerPort": HEALTH_PORT, "protocol": "TCP"},
        ],
        **probes(),
        "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}, "limits": {"memory": "1Gi"}},
        "securityContext": dict(CONFINED),
        "volumeMounts": [{"name": "config", "mountPath": CONFIGURATION_FOLDER, "readOnly": True}],
    }


def arguments(settings: Settings) -> list[str]:
    watched = [f"--watch-namespaces={','.join(settings.watch_namespaces)}"] if settings.watch_namespaces else []
    defaults = [f"--default-limits={STANDARD_LIMITS}", f"--default-requests={STANDARD_REQUESTS}"]
    return ["controller", "--leader-elect", "--extensions", "--log-format=json", *watched, *defaults]


def spread(selector: dict[str, str]) -> list[dict[str, Any]]:
    """Topology spread constraints: over nodes, if possible."""
    return [
        {
            "maxSkew": 1,
            "topologyKey": "kubernetes.io/hostname",
            "whenUnsatisfiable": "ScheduleAnyway",
            "labelSelector": {"matchLabels": dict(selector)},
        }
    ]


def probes() -> dict[str, Any]:
    return {
        "livenessProbe": _probe("/healthz", delay=10, period=20, failures=3),
        "readinessProbe": _probe("/readyz", delay=0, period=5, failures=2),
    }


def _probe(path: str, *, delay: int, period: int, failures: int) -> dict[str, Any]:
    return {
        "httpGet": {"path": path, "port": "health"},
        "initialDelaySeconds": delay,
        "periodSeconds": period,
        "timeoutSeconds": 3,
        "failureThreshold": failures,
    }
