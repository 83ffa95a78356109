"""The router's objects: two replicas, the Service that clients of the contract expect, its permissions, and the role of its users."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from sandpool.install.deployment import CONFINED, HEALTH_PORT, ORDINARY, probes, spread
from sandpool.install.rules import RBAC, ROUTER_ACTIVITY, ROUTER_CLUSTER, ROUTER_NAMESPACED, USERS, granted
from sandpool.install.settings import ROUTER, Settings, labelled, labels, selector
from sandpool.model.labels import SANDBOX_NAME_HASH
from sandpool.wire.router_service import PORT, SERVICE

COMPONENT = "router"
ADMITTED = {"app": "sandbox-router"}
"""Pods that the NetworkPolicy of templates lets in."""
METRICS_PORT = 9090
DNS = 53
API_SERVERS = (443, 6443, 8443, 16443)
"""Ports of API servers behind their Service; common ones."""
KEYS = "sandbox-router-keys"
"""A Secret whose entries are the keys of tokens for one sandbox; without it there are no such tokens."""
KEYS_FOLDER = "/etc/sandbox-router/keys"


def router(settings: Settings) -> list[dict[str, Any]]:
    return [
        {
            "apiVersion": "v1",
            "kind": "ServiceAccount",
            "metadata": labelled(ROUTER, settings.namespace, COMPONENT),
            "automountServiceAccountToken": False,
        },
        *_access(settings),
        _service(settings),
        _deployment(settings),
        {
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "metadata": labelled(ROUTER, settings.namespace, COMPONENT),
            "spec": {"maxUnavailable": 1, "selector": {"matchLabels": selector(COMPONENT)}},
        },
        _network_policy(settings),
    ]


def _access(settings: Settings) -> Iterator[dict[str, Any]]:
    account = {"kind": "ServiceAccount", "name": ROUTER, "namespace": settings.namespace}
    inside = (*ROUTER_NAMESPACED, *ROUTER_ACTIVITY)
    suffix = f"-{settings.namespace}" if settings.watch_namespaces else ""
    everywhere = ROUTER_CLUSTER if settings.watch_namespaces else (*inside, *ROUTER_CLUSTER)
    yield from granted(account, f"{ROUTER}{suffix}", "", everywhere, COMPONENT)
    for namespace in settings.watch_namespaces:
        yield from granted(account, ROUTER, namespace, inside, COMPONENT)
    users = labelled(f"{ROUTER}-users{suffix}", component=COMPONENT)
    users["labels"]["rbac.authorization.k8s.io/aggregate-to-edit"] = "true"
    rules = [rule.body() for rule in USERS]
    yield {"apiVersion": f"{RBAC}/v1", "kind": "ClusterRole", "metadata": users, "rules": rules}


def _service(settings: Settings) -> dict[str, Any]:
    ports = [
        {"name": "http", "port": PORT, "targetPort": "http", "protocol": "TCP"},
        {"name": "metrics", "port": METRICS_PORT, "targetPort": "metrics", "protocol": "TCP"},
    ]
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": labelled(SERVICE, settings.namespace, COMPONENT),
        "spec": {"type": "ClusterIP", "selector": selector(COMPONENT), "ports": ports},
    }


def _network_policy(settings: Settings) -> dict[str, Any]:
    """In: requests, and what probes and Prometheus read. Out: sandboxes, DNS, and the ports that API servers listen on, since their
    addresses differ from cluster to cluster."""
    sandboxes = {"key": SANDBOX_NAME_HASH, "operator": "Exists"}
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": labelled(ROUTER, settings.namespace, COMPONENT),
        "spec": {
            "podSelector": {"matchLabels": selector(COMPONENT)},
            "policyTypes": ["Ingress", "Egress"],
            "ingress": [{"ports": _tcp(port)} for port in (PORT, METRICS_PORT, HEALTH_PORT)],
            "egress": [
                {"to": [{"namespaceSelector": {}, "podSelector": {"matchExpressions": [sandboxes]}}]},
                {"ports": [{"protocol": "UDP", "port": DNS}, *_tcp(DNS)]},
                {"ports": _tcp(*API_SERVERS)},
            ],
        },
    }


def _tcp(*ports: int) -> list[dict[str, Any]]:
    return [{"protocol": "TCP", "port": port} for port in ports]


def _deployment(settings: Settings) -> dict[str, Any]:
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": labelled(ROUTER, settings.namespace, COMPONENT),
        "spec": {
            "replicas": 2,
            "selector": {"matchLabels": selector(COMPONENT)},
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}},
            "template": {"metadata": {"labels": {**labels(COMPONENT), **ADMITTED}}, "spec": _pod(settings)},
        },
    }


def _pod(settings: Settings) -> dict[str, Any]:
    keys = {"secretName": KEYS, "optional": True, "defaultMode": 0o440}
    return {
        "serviceAccountName": ROUTER,
        "automountServiceAccountToken": True,
        "terminationGracePeriodSeconds": 30,
        "securityContext": dict(ORDINARY),
        "topologySpreadConstraints": spread(selector(COMPONENT)),
        "containers": [_container(settings)],
        "volumes": [{"name": "keys", "secret": keys}],
    }


def _container(settings: Settings) -> dict[str, Any]:
    ports = (("http", PORT), ("metrics", METRICS_PORT), ("health", HEALTH_PORT))
    return {
        "name": "router",
        "image": settings.image,
        "imagePullPolicy": "IfNotPresent",
        "args": arguments(settings),
        "ports": [{"name": name, "containerPort": port, "protocol": "TCP"} for name, port in ports],
        **probes(),
        "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}, "limits": {"memory": "1Gi"}},
        "securityContext": dict(CONFINED),
        "volumeMounts": [{"name": "keys", "mountPath": KEYS_FOLDER, "readOnly": True}],
    }


def arguments(settings: Settings) -> list[str]:
    served = [f"--namespaces={','.join(settings.watch_namespaces)}"] if settings.watch_namespaces else []
    return ["router", "--log-format=json", "--audit-log=-", f"--token-key-file={KEYS_FOLDER}", *served]
