"""Objects as another implementation of the contract leaves them behind when it stops: its owners, labels, names and words.

What differs from ours: names of members have five random characters; pods lack the label of the sandbox's uid and the hash of
their spec; members say in their spec that they may be evicted; pod specs are not hardened; blueprint hashes are of other
bytes; policies belong to templates; Services select by the hash of a name alone; messages are worded differently.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sandpool.kube.api import Api
from sandpool.model import labels
from sandpool.model.core import NetworkPolicy
from sandpool.model.kinds import (
    CLAIMS,
    NETWORK_POLICIES,
    PERSISTENT_VOLUME_CLAIMS,
    PODS,
    POOLS,
    SANDBOXES,
    SERVICES,
    TEMPLATES,
)
from sandpool.model.metadata import Object
from sandpool.model.names import name_hash
from sandpool.model.patches import merge_patch
from sandpool.model.resource import Resource

Body = dict[str, Any]
SINCE = "2025-12-24T18:00:00Z"
NODE = "local"
IMAGE: Body = {"containers": [{"name": "main", "image": "python", "ports": [{"containerPort": 80, "protocol": "TCP"}]}]}
SECURED: Body = {
    **IMAGE,
    "automountServiceAccountToken": False,
    "dnsPolicy": "None",
    "dnsConfig": {"nameservers": ["8.8.8.8", "1.1.1.1"]},
}
STRICT: Body = {
    "policyTypes": ["Ingress", "Egress"],
    "ingress": [
        {
            "from": [
                {
                    "podSelector": {"matchLabels": {"app": "sandbox-router"}},
                    "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "agent-sandbox-system"}},
                }
            ]
        }
    ],
    "egress": [
        {
            "to": [
                {
                    "ipBlock": {
                        "cidr": "0.0.0.0/0",
                        "except": ["10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "169.254.0.0/16"],
                    }
                },
                {"ipBlock": {"cidr": "::/0", "except": ["fc00::/7", "fe80::/10"]}},
            ]
        }
    ],
}


def condition(type_: str, status: str, reason: str, message: str) -> Body:
    return {
        "type": type_,
        "status": status,
        "reason": reason,
        "message": message,
        "observedGeneration": 1,
        "lastTransitionTime": SINCE,
    }


READY = condition("Ready", "True", "DependenciesReady", "Pod is Ready")
RUNNING = [
    condition("Suspended", "False", "NotSuspended", "Sandbox is operational"),
    condition("PodScheduled", "True", "PodScheduled", ""),
    READY,
]


def reference(owner: Object, resource: Resource[Any], version: str = "") -> Body:
    """With the version of the time: references are never rewritten."""
    group, _, current = resource.api_version.partition("/")
    return {
        "apiVersion": f"{group}/{version or current}",
        "kind": resource.kind,
        "name": owner.metadata.name,
        "uid": str(owner.metadata.uid),
        "controller": True,
        "blockOwnerDeletion": True,
    }


class Installation:
    """One namespace of it. `version` is the API version that owners are referred to by."""

    def __init__(self, api: Api, version: str = "v1beta1", namespace: str = "default") -> None:
        self._api = api
        self._version = version
        self._namespace = namespace
        self._addresses = iter(range(2, 250))

    async def template(self, name: str = "python", pod: Body = IMAGE, **spec: Any) -> Object:
        made = await self._make(TEMPLATES, name, {"podTemplate": {"spec": pod}, **spec}, _template_mark(name))
        policy = {**STRICT, "podSelector": {"matchLabels": _template_mark(name)}}
        await self._make(
            NETWORK_POLICIES, f"{name}-network-policy", policy, owner=reference(made, TEMPLATES, self._version)
        )
        return made

    async def claims_policy(self, claim: Object) -> None:
        """Very old versions had a policy for each claim."""
        policy = {"podSelector": {}, "policyTypes": ["Ingress"]}
        name = f"{claim.metadata.name}-network-policy"
        await self._make(NETWORK_POLICIES, name, policy, owner=reference(claim, CLAIMS, self._version))

    async def pool(self, replicas: int, name: str = "python", template: str = "python", **spec: Any) -> Object:
        body = {"replicas": replicas, "sandboxTemplateRef": {"name": template}, **spec}
        made = await self._make(POOLS, name, body)
        status = {
            "replicas": replicas,
            "readyReplicas": replicas,
            "selector": f"{labels.WARM_POOL}={name_hash(name)}",
            "observedGeneration": 1,
        }
        await self._says(POOLS, name, status)
        return made

    async def member(self, pool: Object, name: str, template: str = "python", pod: Body = SECURED) -> Object:
        marks = {
            labels.WARM_POOL: name_hash(pool.metadata.name),
            **_template_mark(template),
            labels.TEMPLATE_HASH: "0badf00d",
            labels.POD_TEMPLATE_HASH: "0badcafe",
        }
        eviction = {labels.SAFE_TO_EVICT: "true"}
        head = {**marks, labels.LAUNCH_TYPE: "warm", labels.CREATED_BY: "controller"}
        template_part = {"spec": pod, "metadata": {"labels": marks, "annotations": eviction}}
        owner = reference(pool, POOLS, self._version)
        box = await self._sandbox(name, {"podTemplate": template_part}, head, owner, template=template)
        mirrored = {key: head[key] for key in (labels.WARM_POOL, labels.TEMPLATE_REF_HASH, labels.CREATED_BY)}
        record = {labels.PROPAGATED_ANNOTATIONS: labels.SAFE_TO_EVICT}
        await self.pod(box, pod, mirrored, {**eviction, **record})
        return box

    async def claim(self, name: str, pool: str = "python", **spec: Any) -> Object:
        """One that nobody has served."""
        return await self._make(CLAIMS, name, {"warmPoolRef": {"name": pool}, **spec})

    async def bound(
        self,
        claim: Object,
        sandbox: str,
        *,
        template: str = "python",
        pod: Body = SECURED,
        legacy: bool = False,
        service: bool = False,
        mirrored: bool = True,
    ) -> Object:
        """Gives the claim a sandbox that runs: a warm one, or a cold one that has its name. `legacy`: a label names it. Releases before
        1.0.3 did not mirror the Service's name."""
        name, uid = claim.metadata.name, str(claim.metadata.uid)
        own = {labels.CLAIM_UID: uid, **_template_mark(template)}
        launch = "cold" if sandbox == name else "warm"
        head = own if legacy else {**own, labels.LAUNCH_TYPE: launch}
        spec: Body = {
            "podTemplate": {"spec": pod, "metadata": {"labels": own}},
            **({"service": True} if service else {}),
        }
        box = await self._sandbox(
            sandbox, spec, head, reference(claim, CLAIMS, self._version), template=template, service=service
        )
        await self.pod(box, pod, _template_mark(template))
        notes = {
            labels.CONTROLLER_FIRST_OBSERVED_AT: "2025-12-24T17:59:59.123456789Z",
            labels.CLAIM_FIRST_READY_AT: "2025-12-24T18:00:00.123456789Z",
        }
        if launch == "warm" and not legacy:
            notes[labels.SANDBOX_NAME] = sandbox
        mark = {labels.SANDBOX_NAME: sandbox} if legacy else {}
        await self._api.patch(
            CLAIMS, name, merge_patch({"metadata": {"annotations": notes, "labels": mark}}), self._namespace
        )
        status = (await self._api.get(SANDBOXES, sandbox, self._namespace)).status
        shown: Body = {"name": sandbox, "podIPs": list(status.pod_ips)}
        if status.service_fqdn and mirrored:
            shown["serviceFQDN"] = status.service_fqdn
        await self._says(CLAIMS, name, {"conditions": [READY], "sandbox": shown})
        return box

    async def bare(self, name: str, *, suspended: bool = False) -> Object:
        """A sandbox of a user, with storage."""
        volume: Body = {
            "metadata": {"name": "data"},
            "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
        }
        mode = {"operatingMode": "Suspended"} if suspended else {}
        box = await self._sandbox(
            name,
            {"podTemplate": {"spec": IMAGE}, "volumeClaimTemplates": [volume], **mode},
            {},
            None,
            runs=not suspended,
        )
        owner, mark = reference(box, SANDBOXES, self._version), _mark(name)
        await self._make(PERSISTENT_VOLUME_CLAIMS, f"data-{name}", volume["spec"], mark, owner)
        mounted = {"name": "data", "persistentVolumeClaim": {"claimName": f"data-{name}"}}
        if not suspended:
            await self.pod(box, {**IMAGE, "volumes": [mounted]}, {})
        return box

    async def pod(
        self, box: Object, spec: Body, marks: Mapping[str, str], notes: Mapping[str, str] | None = None
    ) -> None:
        name = box.metadata.name
        owner = reference(box, SANDBOXES, self._version)
        await self._make(PODS, name, {**spec, "nodeName": NODE}, {**_mark(name), **marks}, owner, notes)
        seen = (await self._api.get(SANDBOXES, name, self._namespace)).status.pod_ips
        running = {"running": {"startedAt": SINCE}}
        container = {
            "name": "main",
            "ready": True,
            "started": True,
            "restartCount": 0,
            "image": "python",
            "imageID": "x",
        }
        status = {
            "phase": "Running",
            "podIP": seen[0],
            "podIPs": [{"ip": ip} for ip in seen],
            "hostIP": "127.0.0.1",
            "startTime": SINCE,
            "conditions": [
                {"type": type_, "status": "True", "lastTransitionTime": SINCE}
                for type_ in ("PodScheduled", "PodReadyToStartContainers", "Initialized", "ContainersReady", "Ready")
            ],
            "containerStatuses": [{**container, "state": running}],
        }
        await self._says(PODS, name, status)

    async def _sandbox(
        self,
        name: str,
        spec: Body,
        marks: Body,
        owner: Body | None,
        *,
        template: str = "",
        service: bool = False,
        runs: bool = True,
    ) -> Object:
        notes = {**({labels.TEMPLATE_REF: template} if template else {}), **({labels.POD_NAME: name} if runs else {})}
        box = await self._make(SANDBOXES, name, spec, marks, owner, notes)
        status: Body = {"conditions": RUNNING, "selector": f"{labels.SANDBOX_NAME_HASH}={name_hash(name)}"}
        if runs:
            status |= {"podIPs": [f"10.200.0.{next(self._addresses)}"], "nodeName": NODE}
        else:
            status["conditions"] = [
                condition("Suspended", "True", "PodTerminated", "Pod is terminated"),
                condition("Ready", "False", "SandboxSuspended", "Sandbox is suspended"),
            ]
        if service:
            status |= {"service": name, "serviceFQDN": f"{name}.{self._namespace}.svc.cluster.local"}
            port = {"name": "p-80-tcp", "port": 80, "targetPort": 80, "protocol": "TCP"}
            headless = {"clusterIP": "None", "selector": _mark(name), "ports": [port]}
            await self._make(SERVICES, name, headless, _mark(name), reference(box, SANDBOXES, self._version))
        await self._says(SANDBOXES, name, status)
        return box

    async def _make(
        self,
        resource: Resource[Any],
        name: str,
        spec: Body,
        marks: Mapping[str, str] | None = None,
        owner: Body | None = None,
        notes: Mapping[str, str] | None = None,
    ) -> Object:
        head: Body = {"name": name, "labels": dict(marks or {}), "annotations": dict(notes or {})}
        if owner is not None:
            head["ownerReferences"] = [owner]
        body = {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": head, "spec": spec}
        made: Object = await self._api.create(resource, body, self._namespace)
        return made

    async def _says(self, resource: Resource[Any], name: str, status: Body) -> None:
        await self._api.patch_status(resource, name, merge_patch({"status": status}), self._namespace)


def _mark(sandbox: str) -> dict[str, str]:
    return {labels.SANDBOX_NAME_HASH: name_hash(sandbox)}


def _template_mark(template: str) -> dict[str, str]:
    return {labels.TEMPLATE_REF_HASH: name_hash(template)}


def freed(policy: NetworkPolicy, template: str) -> bool:
    """Nobody owns it, and it says whose it is."""
    meta = policy.metadata
    return not meta.owner_references and meta.annotations.get(labels.TEMPLATE_REF) == template
