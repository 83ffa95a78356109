"""Bodies that are not what they should be, before anybody looks at rules: JSON, types, unknown and duplicate fields."""

from __future__ import annotations

import json
from typing import Any

from conformance.bodies import claim, core, metadata, pod, pod_spec, pool, sandbox, sandbox_with
from conformance.rest.case import CLAIMS, CONFIG, CORE, JSON, MERGE, POOLS, SANDBOX, SANDBOXES, YAML, Case

MIB = 1024 * 1024


def post(name: str, body: Any, query: str = "", content_type: str = JSON, path: str = SANDBOXES, **more: Any) -> Case:
    return Case(name, f"POST {path}{query}", body, content_type, **more)


def _text(body: Any) -> bytes:
    return json.dumps(body).encode()


def _doubled(body: Any, field: str, again: str) -> bytes:
    """The body as JSON in which the first occurrence of a field is followed by another one of the same name."""
    text = json.dumps(body)
    return text.replace(f'"{field}":', f'"{field}": {again}, "{field}":', 1).encode()


def _nested(depth: int) -> bytes:
    return _text(sandbox(spec={"x": "@"})).replace(b'"@"', b"[" * depth + b"]" * depth)


SHAPES = [
    post("body: malformed JSON", b'{"apiVersion": "agents.x-k8s.io/v1beta1", '),
    post("body: empty", b""),
    post("body: not JSON at all", b"hello"),
    post("body: a list", []),
    post("body: a string", b'"text"'),
    post("body: a number", b"42"),
    post("body: null", b"null"),
    post("body: an empty object", {}),
    post("body: two documents", _text(sandbox()) + _text(sandbox("b"))),
    post("body: trailing text", _text(sandbox()) + b" and more"),
    post("body: invalid UTF-8 in a value", _text(sandbox_with(annotations={"k": "@"})).replace(b"@", b"\xff\xfe")),
    post("body: nested 200 deep", _nested(200)),
    post("body: nested 20000 deep", _nested(20000)),
    post("body: no kind", {k: v for k, v in sandbox().items() if k != "kind"}),
    post("body: no apiVersion", {k: v for k, v in sandbox().items() if k != "apiVersion"}),
    post("body: kind of another resource", sandbox(kind="SandboxClaim")),
    post("body: kind that nobody has", sandbox(kind="Banana")),
    post("body: another group", sandbox(apiVersion="apps/v1")),
    post("body: another version", sandbox(apiVersion="agents.x-k8s.io/v9")),
    post("body: apiVersion with too many slashes", sandbox(apiVersion="a/b/c")),
    post("body: core kind malformed JSON", b'{"kind": ', path=f"{CORE}/configmaps"),
    post("body: core kind empty", b"", path=f"{CORE}/configmaps"),
    post("body: core kind a list", [], path=f"{CORE}/configmaps"),
    post("body: core kind without kind", {"metadata": {"name": "a"}}, path=f"{CORE}/configmaps", show=("kind",)),
    post("body: core kind of another resource", pod(), path=f"{CORE}/configmaps"),
    post("body: core kind that nobody has", core("Banana"), path=f"{CORE}/configmaps"),
    post("body: core kind in another version", {**core("ConfigMap"), "apiVersion": "v9"}, path=f"{CORE}/configmaps"),
]

MEDIA = [
    post("media type: text/plain", sandbox(), content_type="text/plain"),
    post("media type: nonsense", sandbox(), content_type="banana"),
    post("media type: form", b"a=b", content_type="application/x-www-form-urlencoded"),
    post("media type: JSON with a charset", sandbox(), content_type="application/json; charset=utf-8"),
    post("media type: none", sandbox(), content_type="", show=("metadata.name",)),
    post("media type: YAML", b"@yaml", content_type=YAML),
    post("media type: YAML that is none", b"{a: [", content_type=YAML),
    post("media type: merge patch in a POST", sandbox(), content_type=MERGE),
    post(
        "media type: text/plain of a core kind", core("ConfigMap"), content_type="text/plain", path=f"{CORE}/configmaps"
    ),
    post("size: 3 MiB and more", _text(sandbox_with(annotations={"k": "x" * (3 * MIB)}))),
    post(
        "size: 3 MiB and more of a core kind",
        _text(core("ConfigMap", data={"k": "x" * (3 * MIB)})),
        path=f"{CORE}/configmaps",
    ),
    Case(
        "size: 3 MiB and more in a patch",
        f"PATCH {SANDBOXES}/a",
        b'{"a": "' + b"x" * (3 * MIB) + b'"}',
        MERGE,
        given=(SANDBOX,),
    ),
]

_ODD = sandbox(spec={"banana": 1, "podTemplate": {"spec": pod_spec(apple=[1]), "pear": {}}}, cherry="x")
UNKNOWN = [
    post("unknown field: Strict", sandbox(spec={"banana": 1}), "?fieldValidation=Strict"),
    post("unknown field: Warn", sandbox(spec={"banana": 1}), "?fieldValidation=Warn", show=("spec.banana",)),
    post("unknown field: Ignore", sandbox(spec={"banana": 1}), "?fieldValidation=Ignore", show=("spec.banana",)),
    post("unknown field: default", sandbox(spec={"banana": 1}), show=("spec.banana",)),
    post("unknown field: several, Strict", _ODD, "?fieldValidation=Strict"),
    post("unknown field: several, Warn", _ODD, "?fieldValidation=Warn", show=("cherry",)),
    post("unknown field: in metadata, Strict", sandbox_with(banana=1), "?fieldValidation=Strict"),
    post(
        "unknown field: in a list item, Strict",
        sandbox(
            spec={
                "podTemplate": {
                    "spec": {"containers": [{"name": "a", "image": "b"}, {"name": "c", "image": "d", "fig": 1}]}
                }
            }
        ),
        "?fieldValidation=Strict",
    ),
    post(
        "unknown field: beside an invalid one, Strict",
        sandbox(spec={"banana": 1, "operatingMode": "Odd"}),
        "?fieldValidation=Strict",
    ),
    post(
        "unknown field: beside an invalid one, Warn",
        sandbox(spec={"banana": 1, "operatingMode": "Odd"}),
        "?fieldValidation=Warn",
    ),
    post("unknown field: fieldValidation nonsense", sandbox(), "?fieldValidation=Banana"),
    post(
        "unknown field: wrong case of a known one, Strict",
        sandbox(spec={"OperatingMode": "Running"}),
        "?fieldValidation=Strict",
    ),
    post(
        "unknown field: core kind, Strict",
        core("ConfigMap", banana=1),
        "?fieldValidation=Strict",
        path=f"{CORE}/configmaps",
    ),
    post(
        "unknown field: core kind, Warn",
        core("ConfigMap", banana=1),
        "?fieldValidation=Warn",
        path=f"{CORE}/configmaps",
    ),
    post("unknown field: core kind, default", core("ConfigMap", banana=1), path=f"{CORE}/configmaps"),
    post("unknown field: core kind nested, Strict", pod(apple=1), "?fieldValidation=Strict", path=f"{CORE}/pods"),
    post(
        "unknown field: core metadata, Strict",
        core("ConfigMap", metadata=metadata(banana=1)),
        "?fieldValidation=Strict",
        path=f"{CORE}/configmaps",
    ),
    Case(
        "unknown field: PUT, Strict",
        f"PUT {SANDBOXES}/a?fieldValidation=Strict",
        sandbox(spec={"banana": 1}, metadata=metadata(resourceVersion="{rv}")),
        given=(SANDBOX,),
    ),
    Case(
        "unknown field: merge patch, Strict",
        f"PATCH {SANDBOXES}/a?fieldValidation=Strict",
        {"spec": {"banana": 1}},
        MERGE,
        given=(SANDBOX,),
    ),
    Case(
        "unknown field: merge patch, Warn",
        f"PATCH {SANDBOXES}/a",
        {"spec": {"banana": 1}},
        MERGE,
        given=(SANDBOX,),
        show=("metadata.generation",),
    ),
    Case(
        "unknown field: merge patch of a core kind, Strict",
        f"PATCH {CORE}/configmaps/a?fieldValidation=Strict",
        {"banana": 1},
        MERGE,
        given=(CONFIG,),
    ),
]

DUPLICATE = [
    post(
        "duplicate field: Strict",
        _doubled(sandbox(spec={"operatingMode": "Running"}), "operatingMode", '"Suspended"'),
        "?fieldValidation=Strict",
    ),
    post(
        "duplicate field: Warn",
        _doubled(sandbox(spec={"operatingMode": "Running"}), "operatingMode", '"Suspended"'),
        "?fieldValidation=Warn",
        show=("spec.operatingMode",),
    ),
    post(
        "duplicate field: Ignore",
        _doubled(sandbox(spec={"operatingMode": "Running"}), "operatingMode", '"Suspended"'),
        "?fieldValidation=Ignore",
        show=("spec.operatingMode",),
    ),
    post("duplicate field: in metadata, Strict", _doubled(sandbox(), "name", '"b"'), "?fieldValidation=Strict"),
    post("duplicate field: at the top, Strict", _doubled(sandbox(), "kind", '"Sandbox"'), "?fieldValidation=Strict"),
    post(
        "duplicate field: core kind, Strict",
        _doubled(core("ConfigMap", immutable=True), "immutable", "false"),
        "?fieldValidation=Strict",
        path=f"{CORE}/configmaps",
    ),
    post(
        "duplicate field: core kind, Warn",
        _doubled(core("ConfigMap", immutable=True), "immutable", "false"),
        path=f"{CORE}/configmaps",
        show=("immutable",),
    ),
]

TYPES = [
    post("type: spec is a string", sandbox(spec=None) | {"spec": "x"}),
    post("type: spec is null", sandbox() | {"spec": None}),
    post("type: metadata is a string", sandbox(metadata="x")),
    post("type: metadata is null", sandbox(metadata=None)),
    post("type: name is a number", sandbox(metadata={"name": 1})),
    post("type: labels are a list", sandbox_with(labels=["a"])),
    post("type: a label is a number", sandbox_with(labels={"a": 1})),
    post("type: a label is null", sandbox_with(labels={"a": None}), show=("metadata.labels",)),
    post("type: an annotation is a boolean", sandbox_with(annotations={"a": True})),
    post("type: finalizers are a string", sandbox_with(finalizers="x")),
    post("type: creationTimestamp is nonsense", sandbox_with(creationTimestamp="yesterday")),
    post("type: enum is a number", sandbox(spec={"operatingMode": 1})),
    post("type: boolean is a string", sandbox(spec={"service": "yes"})),
    post("type: list is an object", sandbox(spec={"podTemplate": {"spec": {"containers": {}}}})),
    post("type: list item is a string", sandbox(spec={"podTemplate": {"spec": {"containers": ["x"]}}})),
    post("type: integer is a string", pool(replicas="2"), path=POOLS),
    post("type: integer is a fraction", pool(replicas=1.5), path=POOLS),
    post(
        "type: integer is a whole float",
        _text(pool(replicas=1)).replace(b'"replicas": 1', b'"replicas": 1.0'),
        path=POOLS,
        show=("spec.replicas",),
    ),
    post("type: integer is beyond 32 bits", pool(replicas=2**40), path=POOLS),
    post(
        "type: integer is beyond 64 bits",
        _text(pool(replicas=1)).replace(b'"replicas": 1', b'"replicas": 123456789012345678901234567890'),
        path=POOLS,
    ),
    post("type: map value is a number", claim(additionalPodMetadata={"labels": {"a": 1}}), path=CLAIMS),
    post("type: several at once", sandbox(spec={"operatingMode": 1, "service": "yes"})),
    post("type: core map value is a number", core("ConfigMap", data={"a": 1}), path=f"{CORE}/configmaps"),
    post("type: core spec is a string", core("Pod", spec="x"), path=f"{CORE}/pods"),
    post("type: core list is an object", core("Pod", spec={"containers": {}}), path=f"{CORE}/pods"),
    post("type: core integer is a string", pod(terminationGracePeriodSeconds="1"), path=f"{CORE}/pods"),
    post("type: core boolean is a string", core("ConfigMap", immutable="yes"), path=f"{CORE}/configmaps"),
    post(
        "type: core label is a number", core("ConfigMap", metadata=metadata(labels={"a": 1})), path=f"{CORE}/configmaps"
    ),
]

CASES = [*SHAPES, *MEDIA, *UNKNOWN, *DUPLICATE, *TYPES]
