"""Every kind that we serve or use, by name. The printer columns here are what `kubectl get` shows."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from sandpool.model import core, pod, sandbox, template
from sandpool.model.claim import SandboxClaim
from sandpool.model.metadata import RawObject
from sandpool.model.pool import SandboxWarmPool
from sandpool.model.resource import Column, Resource, Scale
from sandpool.model.sandbox import Sandbox
from sandpool.model.template import SandboxTemplate

_READY = Column("Ready", "string", ".status.conditions[?(@.type=='Ready')].status")
_REASON = Column("Reason", "string", ".status.conditions[?(@.type=='Ready')].reason")
_AGE = Column("Age", "date", ".metadata.creationTimestamp")

SANDBOXES: Resource[Sandbox] = Resource(
    sandbox.GROUP,
    sandbox.VERSION,
    "sandboxes",
    "Sandbox",
    Sandbox,
    singular="sandbox",
    short_names=("sandbox",),
    has_status=True,
    columns=(
        _READY,
        _REASON,
        _AGE,
        Column("Mode", "string", ".spec.operatingMode", priority=1),
        Column("IP", "string", ".status.podIPs[0]", priority=1),
        Column("Node", "string", ".status.nodeName", priority=1),
    ),
)
TEMPLATES: Resource[SandboxTemplate] = Resource(
    template.GROUP,
    template.VERSION,
    "sandboxtemplates",
    "SandboxTemplate",
    SandboxTemplate,
    singular="sandboxtemplate",
    short_names=("sandboxtemplate",),
)
POOLS: Resource[SandboxWarmPool] = Resource(
    template.GROUP,
    template.VERSION,
    "sandboxwarmpools",
    "SandboxWarmPool",
    SandboxWarmPool,
    singular="sandboxwarmpool",
    short_names=("swp",),
    has_status=True,
    scale=Scale(),
    columns=(
        Column("Ready", "integer", ".status.readyReplicas"),
        Column("Desired", "integer", ".spec.replicas"),
        _AGE,
        Column("Current", "integer", ".status.replicas", priority=1),
        Column("Updated", "integer", ".status.updatedReplicas", priority=1),
        Column("Template", "string", ".spec.sandboxTemplateRef.name", priority=1),
    ),
)
CLAIMS: Resource[SandboxClaim] = Resource(
    template.GROUP,
    template.VERSION,
    "sandboxclaims",
    "SandboxClaim",
    SandboxClaim,
    singular="sandboxclaim",
    short_names=("sandboxclaim",),
    has_status=True,
    columns=(
        _READY,
        Column("Sandbox", "string", ".status.sandbox.name"),
        _REASON,
        _AGE,
        Column("Pool", "string", ".spec.warmPoolRef.name", priority=1),
    ),
)

NAMESPACES: Resource[core.Namespace] = Resource(
    "",
    "v1",
    "namespaces",
    "Namespace",
    core.Namespace,
    namespaced=False,
    singular="namespace",
    short_names=("ns",),
    has_status=True,
)
PODS: Resource[pod.Pod] = Resource(
    "", "v1", "pods", "Pod", pod.Pod, singular="pod", short_names=("po",), categories=("all",), has_status=True
)
SERVICES: Resource[core.Service] = Resource(
    "",
    "v1",
    "services",
    "Service",
    core.Service,
    singular="service",
    short_names=("svc",),
    categories=("all",),
    has_status=True,
)
PERSISTENT_VOLUME_CLAIMS: Resource[core.PersistentVolumeClaim] = Resource(
    "",
    "v1",
    "persistentvolumeclaims",
    "PersistentVolumeClaim",
    core.PersistentVolumeClaim,
    singular="persistentvolumeclaim",
    short_names=("pvc",),
    has_status=True,
)
EVENTS: Resource[core.Event] = Resource("", "v1", "events", "Event", core.Event, singular="event", short_names=("ev",))
CONFIG_MAPS: Resource[core.ConfigMap] = Resource(
    "", "v1", "configmaps", "ConfigMap", core.ConfigMap, singular="configmap", short_names=("cm",)
)
SECRETS: Resource[core.Secret] = Resource("", "v1", "secrets", "Secret", core.Secret, singular="secret")
SERVICE_ACCOUNTS: Resource[core.ServiceAccount] = Resource(
    "", "v1", "serviceaccounts", "ServiceAccount", core.ServiceAccount, singular="serviceaccount", short_names=("sa",)
)
NODES: Resource[pod.Node] = Resource(
    "", "v1", "nodes", "Node", pod.Node, namespaced=False, singular="node", short_names=("no",), has_status=True
)
RESOURCE_QUOTAS: Resource[core.ResourceQuota] = Resource(
    "",
    "v1",
    "resourcequotas",
    "ResourceQuota",
    core.ResourceQuota,
    singular="resourcequota",
    short_names=("quota",),
    has_status=True,
)
LEASES: Resource[core.Lease] = Resource("coordination.k8s.io", "v1", "leases", "Lease", core.Lease, singular="lease")
NETWORK_POLICIES: Resource[core.NetworkPolicy] = Resource(
    "networking.k8s.io",
    "v1",
    "networkpolicies",
    "NetworkPolicy",
    core.NetworkPolicy,
    singular="networkpolicy",
    short_names=("netpol",),
)
RUNTIME_CLASSES: Resource[core.RuntimeClass] = Resource(
    "node.k8s.io",
    "v1",
    "runtimeclasses",
    "RuntimeClass",
    core.RuntimeClass,
    namespaced=False,
    singular="runtimeclass",
)

OURS: tuple[Resource[Any], ...] = (SANDBOXES, TEMPLATES, POOLS, CLAIMS)
ALL: tuple[Resource[Any], ...] = (
    *OURS,
    NAMESPACES,
    PODS,
    SERVICES,
    PERSISTENT_VOLUME_CLAIMS,
    EVENTS,
    CONFIG_MAPS,
    SECRETS,
    SERVICE_ACCOUNTS,
    NODES,
    RESOURCE_QUOTAS,
    LEASES,
    NETWORK_POLICIES,
    RUNTIME_CLASSES,
)


def raw(resource: Resource[Any]) -> Resource[RawObject]:
    """The same kind, read whole: for tools that must see every field."""
    return replace(resource, type=RawObject)
