"""Names, labels, annotations, owners and the other fields that every object has."""

from __future__ import annotations

from typing import Any

from conformance.bodies import claim, core, metadata, sandbox, sandbox_with
from conformance.rest.case import CLAIMS, CONFIG, CORE, MERGE, SANDBOX, SANDBOXES, Case

OWNER = {"apiVersion": "v1", "kind": "ConfigMap", "name": "o", "uid": "11111111-2222-3333-4444-555555555555"}

LIVING = OWNER | {"name": "a", "uid": "{uid}"}


def post(name: str, meta: dict[str, Any], show: tuple[str, ...] = (), query: str = "") -> Case:
    return Case(name, f"POST {SANDBOXES}{query}", sandbox(metadata=meta), show=show)


def put_on_core(name: str, meta: dict[str, Any]) -> Case:
    return Case(name, f"POST {CORE}/configmaps", core("ConfigMap", metadata=meta))


def merge(name: str, meta: dict[str, Any], show: tuple[str, ...] = ()) -> Case:
    return Case(name, f"PATCH {SANDBOXES}/a", {"metadata": meta}, MERGE, given=(SANDBOX,), show=show)


NAMES = [
    post("name: upper case", metadata("Abc")),
    post("name: underscore", metadata("a_b")),
    post("name: 254 characters", metadata("a" * 254)),
    post("name: 253 characters", metadata("a" * 253), show=("metadata.generation",)),
    post("name: dots are fine", metadata("a.b"), show=("metadata.name",)),
    post("name: slash", metadata("a/b")),
    post("name: empty", metadata("")),
    post("name: missing", {}),
    post("name: metadata missing is the same", {"labels": {"a": "b"}}),
    post("name: generateName upper case", {"generateName": "Abc-"}),
    post(
        "name: generateName is not needed beside a name",
        metadata(generateName="g-"),
        show=("metadata.name", "metadata.generateName"),
    ),
    Case("name: taken", f"POST {SANDBOXES}", sandbox(), given=(SANDBOX,)),
    Case("name: taken, core kind", f"POST {CORE}/configmaps", core("ConfigMap"), given=(CONFIG,)),
    put_on_core("name: upper case, core kind", metadata("Abc")),
    put_on_core("name: missing, core kind", {}),
    Case("name: namespace with a dot", "POST /api/v1/namespaces", core("Namespace", "a.b")),
    Case("name: namespace upper case", "POST /api/v1/namespaces", core("Namespace", "Abc")),
    Case("name: namespace of 64 characters", "POST /api/v1/namespaces", core("Namespace", "a" * 64)),
    Case(
        "name: service beginning with a digit",
        f"POST {CORE}/services",
        core("Service", "1a", spec={"ports": [{"port": 80}]}),
    ),
    Case("name: claim upper case", f"POST {CLAIMS}", claim("Abc")),
]

LABELS = [
    post("label: key with two slashes", metadata(labels={"a/b/c": "d"})),
    post("label: key empty", metadata(labels={"": "d"})),
    post("label: key with a space", metadata(labels={"a b": "d"})),
    post("label: key of 64 characters", metadata(labels={"k" * 64: "d"})),
    post("label: prefix upper case", metadata(labels={"Example.com/a": "d"})),
    post("label: prefix empty", metadata(labels={"/a": "d"})),
    post("label: value of 64 characters", metadata(labels={"a": "v" * 64})),
    post("label: value with a space", metadata(labels={"a": "b c"})),
    post("label: value ends with a dash", metadata(labels={"a": "b-"})),
    post("label: value empty is fine", metadata(labels={"a": ""}), show=("metadata.labels",)),
    post("label: several bad ones", metadata(labels={"a b": "c", "d": "e f"})),
    merge("label: bad value in a merge patch", {"labels": {"a": "b c"}}),
    put_on_core("label: bad value, core kind", metadata(labels={"a": "b c"})),
    post("annotation: key with a space", metadata(annotations={"a b": "c"})),
    post("annotation: key with two slashes", metadata(annotations={"a/b/c": "d"})),
    post("annotation: key upper case is fine", metadata(annotations={"Abc": "d"}), show=("metadata.annotations",)),
    post("annotation: more than 256 KiB", metadata(annotations={"a": "x" * 262145})),
    put_on_core("annotation: key with a space, core kind", metadata(annotations={"a b": "c"})),
]

OWNERS = [
    post("owner: without uid", metadata(ownerReferences=[{k: v for k, v in OWNER.items() if k != "uid"}])),
    post("owner: without name", metadata(ownerReferences=[{k: v for k, v in OWNER.items() if k != "name"}])),
    post("owner: without kind", metadata(ownerReferences=[{k: v for k, v in OWNER.items() if k != "kind"}])),
    post(
        "owner: without apiVersion", metadata(ownerReferences=[{k: v for k, v in OWNER.items() if k != "apiVersion"}])
    ),
    post("owner: empty", metadata(ownerReferences=[{}])),
    post(
        "owner: two controllers",
        metadata(
            ownerReferences=[OWNER | {"controller": True}, OWNER | {"name": "p", "uid": "22", "controller": True}]
        ),
    ),
    Case(
        "owner: the same twice",
        f"POST {SANDBOXES}",
        sandbox_with(ownerReferences=[LIVING, LIVING]),
        given=(CONFIG,),
        show=("metadata.ownerReferences",),
    ),
    post("owner: controller is a string", metadata(ownerReferences=[OWNER | {"controller": "yes"}])),
    post("owner: is an event", metadata(ownerReferences=[OWNER | {"kind": "Event"}])),
    post(
        "owner: unknown field, Strict",
        metadata(ownerReferences=[OWNER | {"banana": 1}]),
        query="?fieldValidation=Strict",
    ),
    post("finalizer: not qualified", metadata(finalizers=["banana"])),
    post("finalizer: with a space", metadata(finalizers=["a b"])),
    post("finalizer: qualified", metadata(finalizers=["example.com/a"]), show=("metadata.finalizers",)),
    post("finalizer: foreground and orphan together", metadata(finalizers=["foregroundDeletion", "orphan"])),
    put_on_core("finalizer: not qualified, core kind", metadata(finalizers=["banana"])),
]

OTHERS = [
    post("namespace: another than the path's", metadata(namespace="elsewhere")),
    post("namespace: taken from the path", metadata(), show=("metadata.namespace",)),
    put_on_core("namespace: another than the path's, core kind", metadata(namespace="elsewhere")),
    post("create: resourceVersion set", metadata(resourceVersion="5")),
    put_on_core("create: resourceVersion set, core kind", metadata(resourceVersion="5")),
    post(
        "create: uid is ignored",
        metadata(uid="mine", generation=7, creationTimestamp="2020-01-01T00:00:00Z"),
        show=("metadata.generation",),
    ),
    post(
        "create: deletionTimestamp is ignored",
        metadata(deletionTimestamp="2020-01-01T00:00:00Z", deletionGracePeriodSeconds=3),
        show=("metadata.deletionTimestamp", "metadata.deletionGracePeriodSeconds"),
    ),
    post("create: selfLink is dropped", metadata(selfLink="/x"), show=("metadata.selfLink",)),
    merge("update: another name", {"name": "b"}),
    merge("update: another namespace", {"namespace": "elsewhere"}),
    merge("update: another uid", {"uid": "other"}),
    merge("update: name removed", {"name": None}),
    merge("update: generation is ignored", {"generation": 9}, show=("metadata.generation",)),
    merge(
        "update: creationTimestamp is ignored",
        {"creationTimestamp": "2020-01-01T00:00:00Z"},
        show=("metadata.generation",),
    ),
    merge(
        "update: deletionTimestamp cannot be set",
        {"deletionTimestamp": "2020-01-01T00:00:00Z"},
        show=("metadata.deletionTimestamp",),
    ),
    merge("update: resourceVersion is stale", {"resourceVersion": "1"}),
    merge("update: resourceVersion is nonsense", {"resourceVersion": "banana"}),
    merge(
        "update: resourceVersion is null", {"resourceVersion": None, "labels": {"x": "y"}}, show=("metadata.labels",)
    ),
    merge("update: metadata is null", None),  # type: ignore[arg-type]
]

CASES = [*NAMES, *LABELS, *OWNERS, *OTHERS]
