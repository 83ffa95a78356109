"""API Priority and Fairness for the controllers, so that other requests do not delay claims, nor claims other requests.

A priority level of their own, in which namespaces take turns, and the lease on the level that the cluster has for leases. Not part of an
installation unless asked for: it takes concurrency from the levels that are there.
"""

from __future__ import annotations

from typing import Any

from sandpool.install.settings import CONTROLLER, ROUTER, Settings, labelled

FLOW_CONTROL = "flowcontrol.apiserver.k8s.io"
SHARES = 100
"""Of the server's concurrency, where all levels of a new cluster have 245 together. Half of it is lent to others while it is idle."""
LEASE_PRECEDENCE, PRECEDENCE = 890, 900
"""Before those for all service accounts (9000), after those of the cluster's own parts."""


def priority(settings: Settings = Settings()) -> list[dict[str, Any]]:
    accounts = [_account(name, settings.namespace) for name in (CONTROLLER, ROUTER)]
    everything: dict[str, Any] = {
        "subjects": accounts,
        "resourceRules": [
            {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "namespaces": ["*"], "clusterScope": True}
        ],
        "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}],
    }
    leases: dict[str, Any] = {
        "subjects": accounts[:1],
        "resourceRules": [
            {
                "verbs": ["get", "create", "update", "patch"],
                "apiGroups": ["coordination.k8s.io"],
                "resources": ["leases"],
                "namespaces": [settings.namespace],
            }
        ],
    }
    return [
        {
            "apiVersion": f"{FLOW_CONTROL}/v1",
            "kind": "PriorityLevelConfiguration",
            "metadata": labelled(CONTROLLER),
            "spec": {
                "type": "Limited",
                "limited": {
                    "nominalConcurrencyShares": SHARES,
                    "lendablePercent": 50,
                    "limitResponse": {
                        "type": "Queue",
                        "queuing": {"queues": 64, "handSize": 6, "queueLengthLimit": 50},
                    },
                },
            },
        },
        _schema(f"{CONTROLLER}-leader-election", "leader-election", LEASE_PRECEDENCE, "ByUser", leases),
        _schema(CONTROLLER, CONTROLLER, PRECEDENCE, "ByNamespace", everything),
    ]


def _account(name: str, namespace: str) -> dict[str, Any]:
    return {"kind": "ServiceAccount", "serviceAccount": {"name": name, "namespace": namespace}}


def _schema(name: str, level: str, precedence: int, by: str, rules: dict[str, Any]) -> dict[str, Any]:
    return {
        "apiVersion": f"{FLOW_CONTROL}/v1",
        "kind": "FlowSchema",
        "metadata": labelled(name),
        "spec": {
            "priorityLevelConfiguration": {"name": level},
            "matchingPrecedence": precedence,
            "distinguisherMethod": {"type": by},
            "rules": [rules],
        },
    }
