"""Rules of the core kinds that we serve: what each must have, what may not change, what the server fills in."""

from __future__ import annotations

from typing import Any

from conformance.bodies import core, lease, metadata, pod
from conformance.rest.case import CONFIG, CORE, LEASE, LEASES, MERGE, POD, POLICIES, STRATEGIC, Case, Step


def post(name: str, plural: str, body: Any, show: tuple[str, ...] = ()) -> Case:
    return Case(name, f"POST {CORE}/{plural}", body, show=show)


def pod_case(name: str, show: tuple[str, ...] = (), **spec: Any) -> Case:
    return post(name, "pods", pod(**spec), show)


def one(**container: Any) -> list[dict[str, Any]]:
    return [{"name": "main", "image": "python", **container}]


PODS = [
    post("pod: without spec", "pods", core("Pod")),
    pod_case("pod: no containers", containers=[]),
    pod_case("pod: container without name", containers=[{"image": "x"}]),
    pod_case("pod: container without image", containers=[{"name": "x"}]),
    pod_case("pod: container name upper case", containers=one(name="Main")),
    pod_case("pod: two containers of one name", containers=one() + one()),
    pod_case("pod: restartPolicy", restartPolicy="Odd"),
    pod_case("pod: port out of range", containers=one(ports=[{"containerPort": 70000}])),
    pod_case("pod: protocol", containers=one(ports=[{"containerPort": 80, "protocol": "ODD"}])),
    pod_case("pod: env name is empty", containers=one(env=[{"name": "", "value": "x"}])),
    pod_case("pod: quantity is nonsense", containers=one(resources={"limits": {"cpu": "lots"}})),
    pod_case("pod: request above limit", containers=one(resources={"limits": {"cpu": "1"}, "requests": {"cpu": "2"}})),
    pod_case("pod: mount of an absent volume", containers=one(volumeMounts=[{"name": "v", "mountPath": "/v"}])),
    pod_case("pod: negative terminationGracePeriodSeconds", terminationGracePeriodSeconds=-1),
    pod_case(
        "pod: defaults",
        show=(
            "status.phase",
            "status.qosClass",
            "spec.restartPolicy",
            "spec.terminationGracePeriodSeconds",
            "spec.dnsPolicy",
            "spec.schedulerName",
            "spec.containers.0.imagePullPolicy",
            "spec.containers.0.terminationMessagePath",
        ),
    ),
    pod_case(
        "pod: the memory unit of a limit",
        ("spec.containers.0.resources",),
        containers=one(resources={"limits": {"memory": "1Gi"}}),
    ),
    Case(
        "pod: image may change",
        f"PATCH {CORE}/pods/a",
        {"spec": {"containers": one(image="other")}},
        STRATEGIC,
        given=(POD,),
        show=("metadata.generation", "spec.containers.0.image"),
    ),
    Case(
        "pod: env may not change",
        f"PATCH {CORE}/pods/a",
        {"spec": {"containers": one(env=[{"name": "A", "value": "b"}])}},
        STRATEGIC,
        given=(POD,),
    ),
    Case(
        "pod: restartPolicy may not change",
        f"PATCH {CORE}/pods/a",
        {"spec": {"restartPolicy": "Never"}},
        MERGE,
        given=(POD,),
    ),
    Case(
        "pod: containers may not be added",
        f"PATCH {CORE}/pods/a",
        {"spec": {"containers": [{"name": "b", "image": "x"}]}},
        STRATEGIC,
        given=(POD,),
    ),
    Case(
        "pod: phase in its status",
        f"PATCH {CORE}/pods/a/status",
        {"status": {"phase": "Running", "podIP": "10.0.0.1", "podIPs": [{"ip": "10.0.0.1"}]}},
        MERGE,
        given=(POD,),
        show=("status.phase", "status.podIP", "metadata.generation"),
    ),
    Case(
        "pod: conditions merge by type",
        f"PATCH {CORE}/pods/a/status",
        {"status": {"conditions": [{"type": "Ready", "status": "True"}]}},
        STRATEGIC,
        given=(
            POD,
            Step(
                f"PATCH {CORE}/pods/a/status",
                {"status": {"conditions": [{"type": "Initialized", "status": "True"}]}},
                STRATEGIC,
            ),
        ),
        show=("status.conditions.0.type", "status.conditions.1.type"),
    ),
    Case(
        "pod: status of the object itself is ignored",
        f"PATCH {CORE}/pods/a",
        {"status": {"phase": "Running"}},
        MERGE,
        given=(POD,),
        show=("status.phase",),
    ),
    Case("pod: resize of an absent subresource", f"GET {CORE}/pods/a/banana", given=(POD,)),
]

CONFIGS = [
    post("configmap: bad key", "configmaps", core("ConfigMap", data={"a b": "c"})),
    post(
        "configmap: key in data and binaryData",
        "configmaps",
        core("ConfigMap", data={"a": "b"}, binaryData={"a": "Yg=="}),
    ),
    post("configmap: binaryData is not base64", "configmaps", core("ConfigMap", binaryData={"a": "%"})),
    post("configmap: larger than 1 MiB", "configmaps", core("ConfigMap", data={"a": "x" * (1024 * 1024 + 1)})),
    post("configmap: no generation", "configmaps", core("ConfigMap"), show=("metadata.generation",)),
    Case(
        "configmap: immutable data",
        f"PATCH {CORE}/configmaps/a",
        {"data": {"k": "w"}},
        MERGE,
        given=(Step(f"POST {CORE}/configmaps", core("ConfigMap", data={"k": "v"}, immutable=True)),),
    ),
    Case(
        "configmap: immutable flag removed",
        f"PATCH {CORE}/configmaps/a",
        {"immutable": None},
        MERGE,
        given=(Step(f"POST {CORE}/configmaps", core("ConfigMap", immutable=True)),),
    ),
    Case("configmap: status subresource", f"PATCH {CORE}/configmaps/a/status", {"status": {}}, MERGE, given=(CONFIG,)),
    post(
        "secret: stringData becomes data",
        "secrets",
        core("Secret", stringData={"a": "b"}),
        show=("data", "stringData", "type"),
    ),
    post("secret: bad key", "secrets", core("Secret", data={"a b": "Yg=="})),
    post("secret: data is not base64", "secrets", core("Secret", data={"a": "%"})),
    Case(
        "secret: type may not change",
        f"PATCH {CORE}/secrets/a",
        {"type": "other"},
        MERGE,
        given=(Step(f"POST {CORE}/secrets", core("Secret")),),
    ),
    post("serviceaccount", "serviceaccounts", core("ServiceAccount"), show=("metadata.generation", "secrets")),
]

SERVICES = [
    post("service: without ports", "services", core("Service", spec={})),
    post(
        "service: headless without ports",
        "services",
        core("Service", spec={"clusterIP": "None", "selector": {"a": "b"}}),
        show=("spec.clusterIP", "spec.type", "spec.sessionAffinity", "spec.selector"),
    ),
    post("service: port out of range", "services", core("Service", spec={"ports": [{"port": 0}]})),
    post("service: two ports without names", "services", core("Service", spec={"ports": [{"port": 80}, {"port": 81}]})),
    post("service: bad type", "services", core("Service", spec={"type": "Odd", "ports": [{"port": 80}]})),
    post(
        "service: defaults",
        "services",
        core("Service", spec={"ports": [{"port": 80}]}),
        show=("spec.type", "spec.ports", "spec.sessionAffinity", "spec.internalTrafficPolicy"),
    ),
    post(
        "service: bad selector", "services", core("Service", spec={"selector": {"a b": "c"}, "ports": [{"port": 80}]})
    ),
]

_VOLUME = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
VOLUMES = [
    post("pvc: without spec", "persistentvolumeclaims", core("PersistentVolumeClaim")),
    post(
        "pvc: without accessModes",
        "persistentvolumeclaims",
        core("PersistentVolumeClaim", spec={"resources": _VOLUME["resources"]}),
    ),
    post(
        "pvc: without storage",
        "persistentvolumeclaims",
        core("PersistentVolumeClaim", spec={"accessModes": ["ReadWriteOnce"]}),
    ),
    post(
        "pvc: bad accessMode",
        "persistentvolumeclaims",
        core("PersistentVolumeClaim", spec={**_VOLUME, "accessModes": ["Odd"]}),
    ),
    post(
        "pvc: defaults",
        "persistentvolumeclaims",
        core("PersistentVolumeClaim", spec=_VOLUME),
        show=("spec.volumeMode", "status.phase", "metadata.finalizers"),
    ),
    Case(
        "pvc: spec may not change",
        f"PATCH {CORE}/persistentvolumeclaims/a",
        {"spec": {"accessModes": ["ReadOnlyMany"]}},
        MERGE,
        given=(Step(f"POST {CORE}/persistentvolumeclaims", core("PersistentVolumeClaim", spec=_VOLUME)),),
    ),
]

EVENT: dict[str, Any] = {
    "involvedObject": {"kind": "Pod", "name": "a", "namespace": "{ns}"},
    "reason": "Why",
    "message": "What",
    "type": "Normal",
}
OTHERS = [
    post("event", "events", core("Event", **EVENT), show=("reason", "type", "metadata.generation")),
    post(
        "event: about another namespace",
        "events",
        core("Event", **{**EVENT, "involvedObject": {"kind": "Pod", "namespace": "elsewhere"}}),
    ),
    post("event: without involvedObject", "events", core("Event", reason="Why")),
    Case("event: PUT creates it", f"PUT {CORE}/events/a", core("Event", **EVENT)),
    Case("lease: negative duration", f"POST {LEASES}", lease(leaseDurationSeconds=-1)),
    Case("lease: zero duration", f"POST {LEASES}", lease(leaseDurationSeconds=0)),
    Case("lease: renewTime is nonsense", f"POST {LEASES}", lease(renewTime="now")),
    Case(
        "lease: renewTime keeps microseconds",
        f"POST {LEASES}",
        lease(renewTime="2030-01-01T00:00:00.123456Z"),
        show=("spec.renewTime",),
    ),
    Case("lease: PUT creates it", f"PUT {LEASES}/a", lease(holderIdentity="x"), show=("spec.holderIdentity",)),
    Case(
        "lease: PUT without resourceVersion",
        f"PUT {LEASES}/a",
        lease(holderIdentity="two"),
        given=(LEASE,),
        show=("spec.holderIdentity",),
    ),
    Case(
        "lease: stale PUT",
        f"PUT {LEASES}/a",
        {**lease(holderIdentity="two"), "metadata": metadata(resourceVersion="1")},
        given=(LEASE,),
    ),
    Case(
        "lease: strategic patch",
        f"PATCH {LEASES}/a",
        {"spec": {"holderIdentity": "two"}},
        STRATEGIC,
        given=(LEASE,),
        show=("spec",),
    ),
    Case(
        "networkpolicy: defaults",
        f"POST {POLICIES}",
        {
            "apiVersion": "networking.k8s.io/v1",
            "kind": "NetworkPolicy",
            "metadata": metadata(),
            "spec": {"podSelector": {}},
        },
        show=("spec", "metadata.generation"),
    ),
    Case(
        "networkpolicy: bad policyType",
        f"POST {POLICIES}",
        {
            "apiVersion": "networking.k8s.io/v1",
            "kind": "NetworkPolicy",
            "metadata": metadata(),
            "spec": {"podSelector": {}, "policyTypes": ["Odd"]},
        },
    ),
    Case(
        "namespace: status is filled in",
        "POST /api/v1/namespaces?dryRun=All",
        core("Namespace", "fresh"),
        show=("status.phase", "spec.finalizers", "metadata.labels"),
    ),
    Case("namespace: taken", "POST /api/v1/namespaces", core("Namespace", "{ns}")),
    Case(
        "runtimeclass: without handler",
        "POST /apis/node.k8s.io/v1/runtimeclasses?dryRun=All",
        {"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": metadata()},
    ),
    Case(
        "runtimeclass",
        "POST /apis/node.k8s.io/v1/runtimeclasses?dryRun=All",
        {"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": metadata(), "handler": "runsc"},
        show=("handler",),
    ),
    Case("node", "POST /api/v1/nodes?dryRun=All", core("Node"), show=("metadata.name", "spec")),
]

CASES = [*PODS, *CONFIGS, *SERVICES, *VOLUMES, *OTHERS]
