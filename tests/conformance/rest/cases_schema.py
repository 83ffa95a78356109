"""Rules of our four kinds: required fields, enums, bounds, formats, immutability, defaults, the status subresource."""

from __future__ import annotations

from typing import Any

from conformance.bodies import claim, metadata, pod_spec, pool, sandbox, template
from conformance.rest.case import (
    CLAIM,
    CLAIMS,
    JSON_PATCH,
    MERGE,
    POOL,
    POOLS,
    SANDBOX,
    SANDBOXES,
    TEMPLATES,
    Case,
    Step,
)


def box(name: str, spec: dict[str, Any], show: tuple[str, ...] = ()) -> Case:
    return Case(name, f"POST {SANDBOXES}", sandbox(spec=spec), show=show)


def bare(name: str, spec: Any) -> Case:
    return Case(name, f"POST {SANDBOXES}", {**sandbox(), "spec": spec})


def containers(*items: Any) -> dict[str, Any]:
    return {"podTemplate": {"spec": {"containers": list(items)}}}


MAIN = {"name": "main", "image": "python"}
REQUIRED = [
    Case("required: spec", f"POST {SANDBOXES}", {k: v for k, v in sandbox().items() if k != "spec"}),
    bare("required: podTemplate", {}),
    bare("required: podTemplate is null", {"podTemplate": None}),
    bare("required: podTemplate.spec", {"podTemplate": {}}),
    bare("required: containers", {"podTemplate": {"spec": {}}}),
    bare("required: name of a container", containers({"image": "python"})),
    bare("required: empty containers", containers()),
    bare("required: name of an environment variable", containers(MAIN | {"env": [{"value": "x"}]})),
    box("required: spec of a volume claim template", {"volumeClaimTemplates": [{"metadata": {"name": "x"}}]}),
    Case("required: sandboxTemplateRef", f"POST {POOLS}", pool() | {"spec": {}}),
    Case("required: name of sandboxTemplateRef", f"POST {POOLS}", pool(sandboxTemplateRef={})),
    Case("required: warmPoolRef", f"POST {CLAIMS}", claim() | {"spec": {}}),
    Case("required: value of claim env", f"POST {CLAIMS}", claim(env=[{"name": "a"}])),
    Case("required: podTemplate of a template", f"POST {TEMPLATES}", template() | {"spec": {}}),
    bare("required: several at once", containers({"image": "x"}, {"env": [{}]}) | {"operatingMode": "Odd"}),
]
VALUES = [
    box("enum: operatingMode", {"operatingMode": "Odd"}),
    box("enum: operatingMode is empty", {"operatingMode": ""}),
    box("enum: operatingMode is null takes the default", {"operatingMode": None}, show=("spec.operatingMode",)),
    box("enum: shutdownPolicy", {"shutdownPolicy": "Odd"}),
    box("format: shutdownTime", {"shutdownTime": "tomorrow"}),
    box(
        "format: shutdownTime with an offset",
        {"shutdownTime": "2030-01-01T00:00:00+02:00"},
        show=("spec.shutdownTime",),
    ),
    box(
        "format: shutdownTime with a fraction",
        {"shutdownTime": "2030-01-01T00:00:00.123456Z"},
        show=("spec.shutdownTime",),
    ),
    Case("bound: negative replicas", f"POST {POOLS}", pool(replicas=-1)),
    Case("bound: negative ttlSecondsAfterFinished", f"POST {CLAIMS}", claim(lifecycle={"ttlSecondsAfterFinished": -1})),
    Case("enum: updateStrategy", f"POST {POOLS}", pool(updateStrategy={"type": "Odd"})),
    Case("enum: claim shutdownPolicy", f"POST {CLAIMS}", claim(lifecycle={"shutdownPolicy": "Odd"})),
    Case("enum: networkPolicyManagement", f"POST {TEMPLATES}", template(networkPolicyManagement="Odd")),
    bare(
        "pod template: port beyond 16 bits is not the schema's business",
        containers(MAIN | {"ports": [{"containerPort": 70000}]}),
    ),
    bare("pod template: containerPort is missing", containers(MAIN | {"ports": [{"name": "http"}]})),
    bare("pod template: quantity as a number", containers(MAIN | {"resources": {"limits": {"cpu": 1}}})),
    bare("pod template: quantity is nonsense", containers(MAIN | {"resources": {"limits": {"cpu": "lots"}}})),
    bare("pod template: quantity is a boolean", containers(MAIN | {"resources": {"limits": {"cpu": True}}})),
    bare(
        "pod template: port of a probe as a name", containers(MAIN | {"livenessProbe": {"httpGet": {"port": "http"}}})
    ),
    bare("pod template: two containers of one name", containers(MAIN, MAIN)),
]
DEFAULTS = [
    box(
        "default: operatingMode and shutdownPolicy",
        {},
        show=("spec.operatingMode", "spec.shutdownPolicy", "spec.service"),
    ),
    box(
        "default: protocol of a port",
        containers(MAIN | {"ports": [{"containerPort": 80}]}),
        show=("spec.podTemplate.spec.containers.0.ports",),
    ),
    Case("default: pool", f"POST {POOLS}", pool(), show=("spec",)),
    Case("default: pool with an empty strategy", f"POST {POOLS}", pool(updateStrategy={}), show=("spec",)),
    Case("default: claim", f"POST {CLAIMS}", claim(), show=("spec",)),
    Case("default: claim with an empty lifecycle", f"POST {CLAIMS}", claim(lifecycle={}), show=("spec",)),
    Case("default: template", f"POST {TEMPLATES}", template(), show=("spec",)),
    Case("status: ignored in a create", f"POST {SANDBOXES}", sandbox(status={"nodeName": "n"}), show=("status",)),
    Case(
        "status: unknown in a create is warned about",
        f"POST {SANDBOXES}",
        sandbox(status={"banana": 1}),
        show=("status",),
    ),
    Case(
        "status: invalid in a create is ignored", f"POST {SANDBOXES}", sandbox(status={"nodeName": 1}), show=("status",)
    ),
    Case(
        "status: of a kind without one is pruned",
        f"POST {TEMPLATES}",
        template() | {"status": {"a": 1}},
        show=("status",),
    ),
]

CLAIMED = {"volumeClaimTemplates": [{"metadata": {"name": "d"}, "spec": {"accessModes": ["ReadWriteOnce"]}}]}
WITH_VOLUME = Step(f"POST {SANDBOXES}", sandbox(spec=CLAIMED))
_OTHER = [{"metadata": {"name": "e"}, "spec": {"accessModes": ["ReadWriteOnce"]}}]


def edit(name: str, given: Step, spec: dict[str, Any], show: tuple[str, ...] = ()) -> Case:
    return Case(name, f"PATCH {SANDBOXES}/a", {"spec": spec}, MERGE, given=(given,), show=show)


IMMUTABLE = [
    edit("immutable: volumeClaimTemplates changed", WITH_VOLUME, {"volumeClaimTemplates": _OTHER}),
    edit("immutable: volumeClaimTemplates removed", WITH_VOLUME, {"volumeClaimTemplates": None}),
    edit("immutable: volumeClaimTemplates emptied", WITH_VOLUME, {"volumeClaimTemplates": []}),
    edit("immutable: volumeClaimTemplates added", SANDBOX, CLAIMED),
    edit("immutable: volumeClaimTemplates added empty", SANDBOX, {"volumeClaimTemplates": []}),
    edit("immutable: volumeClaimTemplates the same", WITH_VOLUME, CLAIMED, show=("metadata.generation",)),
    edit("immutable: beside another error", WITH_VOLUME, {"volumeClaimTemplates": _OTHER, "operatingMode": "Odd"}),
    Case(
        "immutable: volumeClaimTemplates in a PUT",
        f"PUT {SANDBOXES}/a",
        sandbox(spec={"volumeClaimTemplates": _OTHER}, metadata=metadata(resourceVersion="{rv}")),
        given=(WITH_VOLUME,),
    ),
    Case(
        "immutable: volumeClaimTemplates in a JSON patch",
        f"PATCH {SANDBOXES}/a",
        [{"op": "replace", "path": "/spec/volumeClaimTemplates/0/metadata/name", "value": "z"}],
        JSON_PATCH,
        given=(WITH_VOLUME,),
    ),
]

CONDITION = {
    "type": "Ready",
    "status": "True",
    "reason": "Fine",
    "message": "",
    "lastTransitionTime": "2030-01-01T00:00:00Z",
}


def status(name: str, body: Any, given: Step = SANDBOX, path: str = SANDBOXES, show: tuple[str, ...] = ()) -> Case:
    return Case(name, f"PATCH {path}/a/status", {"status": body}, MERGE, given=(given,), show=show)


def condition(name: str, **change: Any) -> Case:
    body = {k: v for k, v in {**CONDITION, **change}.items() if v is not ...}
    return status(name, {"conditions": [body]}, show=("status",))


STATUS = [
    condition("condition: complete"),
    condition("condition: without lastTransitionTime", lastTransitionTime=...),
    condition("condition: without reason", reason=...),
    condition("condition: reason is empty", reason=""),
    condition("condition: reason with a space", reason="not fine"),
    condition("condition: status is odd", status="Maybe"),
    condition("condition: message is missing", message=...),
    condition("condition: type is missing", type=...),
    condition("condition: lastTransitionTime is nonsense", lastTransitionTime="now"),
    condition("condition: unknown field", banana=1),
    status("status: generation stays", {"nodeName": "n"}, show=("metadata.generation", "status")),
    status("status: wrong type", {"nodeName": 1}),
    status("status: podIPs", {"podIPs": ["10.0.0.1"]}, show=("status",)),
    status("status: pool", {"replicas": 1, "readyReplicas": 1}, POOL, POOLS, show=("status", "metadata.generation")),
    status("status: pool negative observedGeneration", {"observedGeneration": -1}, POOL, POOLS),
    status("status: claim", {"sandbox": {"name": "s", "podIPs": ["1"]}}, CLAIM, CLAIMS, show=("status",)),
    status("status: null", None, show=("status",)),
    Case(
        "status: spec and labels in a status patch are ignored",
        f"PATCH {SANDBOXES}/a/status",
        {"metadata": {"labels": {"a": "b"}}, "spec": {"operatingMode": "Suspended"}, "status": {"nodeName": "n"}},
        MERGE,
        given=(SANDBOX,),
        show=("metadata.labels", "metadata.generation", "spec.operatingMode", "status"),
    ),
    Case(
        "status: in a patch of the object it is ignored",
        f"PATCH {SANDBOXES}/a",
        {"status": {"nodeName": "n"}},
        MERGE,
        given=(SANDBOX,),
        show=("metadata.generation", "status"),
    ),
    Case("status: absent of this kind", f"GET {TEMPLATES}/a/status", given=(Step(f"POST {TEMPLATES}", template()),)),
    Case("status: GET", f"GET {SANDBOXES}/a/status", given=(SANDBOX,), show=("kind", "metadata.name")),
    Case(
        "status: PUT",
        f"PUT {SANDBOXES}/a/status",
        sandbox(
            spec={"operatingMode": "Suspended"}, status={"nodeName": "n"}, metadata=metadata(resourceVersion="{rv}")
        ),
        given=(SANDBOX,),
        show=("metadata.generation", "spec.operatingMode", "status"),
    ),
]
_LONG = [{"name": f"c{i}", "image": "x", "workingDir": 1} for i in range(3)]
MANY = [
    Case(
        "several: one cause for each",
        f"POST {SANDBOXES}",
        sandbox(spec={"podTemplate": {"spec": pod_spec(containers=_LONG)}}),
    )
]

CASES = [*REQUIRED, *VALUES, *DEFAULTS, *IMMUTABLE, *STATUS, *MANY]
