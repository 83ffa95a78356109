"""Which rules belong to which kind."""

from __future__ import annotations

from typing import Any

from sandpool.controlplane.admission.kinds import claim, cluster, data, pod, quota, sandbox, service
from sandpool.controlplane.admission.kinds.rules import KindRules
from sandpool.model import kinds
from sandpool.model.resource import Resource

_PLAIN = KindRules()
_RULES: dict[Resource[Any], KindRules] = {
    kinds.SANDBOXES: sandbox.SANDBOX,
    kinds.CLAIMS: sandbox.CLAIM,
    kinds.NAMESPACES: cluster.NAMESPACE,
    kinds.PODS: pod.POD,
    kinds.SERVICES: service.SERVICE,
    kinds.PERSISTENT_VOLUME_CLAIMS: claim.CLAIM,
    kinds.EVENTS: cluster.EVENT,
    kinds.CONFIG_MAPS: data.CONFIG_MAP,
    kinds.SECRETS: data.SECRET,
    kinds.SERVICE_ACCOUNTS: cluster.SERVICE_ACCOUNT,
    kinds.NODES: cluster.NODE,
    kinds.RESOURCE_QUOTAS: quota.RESOURCE_QUOTA,
    kinds.LEASES: cluster.LEASE,
    kinds.NETWORK_POLICIES: cluster.NETWORK_POLICY,
    kinds.RUNTIME_CLASSES: cluster.RUNTIME_CLASS,
}


def rules_for(resource: Resource[Any]) -> KindRules:
    return _RULES.get(resource, _PLAIN)
