"""Deletion: preconditions, propagation, finalizers, grace, collections."""

from __future__ import annotations

from typing import Any

from conformance.bodies import metadata, sandbox
from conformance.rest.case import CONFIG, CORE, MERGE, POD, SANDBOX, SANDBOXES, Case, Step, label

PATH = f"{SANDBOXES}/a"
HELD = Step(f"POST {SANDBOXES}", sandbox(metadata=metadata(finalizers=["example.com/a"])))
LEAVING = (HELD, Step(f"DELETE {PATH}"))


def delete(
    name: str, body: Any = None, path: str = PATH, given: tuple[Step, ...] = (SANDBOX,), show: tuple[str, ...] = ()
) -> Case:
    return Case(name, f"DELETE {path}", body, given=given, show=show)


def options(**more: Any) -> dict[str, Any]:
    return {"kind": "DeleteOptions", "apiVersion": "v1", **more}


CASES = [
    delete("delete", show=("status", "details.name", "details.kind", "details.group")),
    delete("delete: absent", given=()),
    delete("delete: uid holds", options(preconditions={"uid": "{uid}"}), show=("status",)),
    delete("delete: uid of another", options(preconditions={"uid": "other"})),
    delete("delete: resourceVersion holds", options(preconditions={"resourceVersion": "{rv}"}), show=("status",)),
    delete(
        "delete: resourceVersion is stale",
        options(preconditions={"resourceVersion": "{rv}"}),
        given=(SANDBOX, label(PATH, late="yes")),
    ),
    delete("delete: both are wrong", options(preconditions={"uid": "other", "resourceVersion": "1"})),
    delete("delete: preconditions of an absent object", options(preconditions={"uid": "other"}), given=()),
    delete(
        "delete: Foreground leaves a finalizer",
        options(propagationPolicy="Foreground"),
        show=("metadata.finalizers", "metadata.deletionGracePeriodSeconds", "metadata.generation"),
    ),
    delete(
        "delete: Orphan leaves a finalizer",
        options(propagationPolicy="Orphan"),
        show=("metadata.finalizers", "metadata.generation"),
    ),
    delete("delete: Background", options(propagationPolicy="Background"), show=("status",)),
    delete("delete: propagation by query", path=f"{PATH}?propagationPolicy=Foreground", show=("metadata.finalizers",)),
    delete("delete: unknown propagation", options(propagationPolicy="Odd")),
    delete("delete: unknown propagation by query", path=f"{PATH}?propagationPolicy=Odd"),
    delete("delete: orphanDependents", options(orphanDependents=True), show=("metadata.finalizers",)),
    delete("delete: orphanDependents and propagation", options(orphanDependents=True, propagationPolicy="Background")),
    delete("delete: dryRun", options(dryRun=["All"]), show=("status",)),
    delete("delete: dryRun nonsense", options(dryRun=["Some"])),
    delete("delete: negative grace", options(gracePeriodSeconds=-1), show=("status",)),
    delete("delete: grace of a custom kind", options(gracePeriodSeconds=5), show=("status",)),
    delete("delete: body is malformed", b"{"),
    delete("delete: body is empty", b"", show=("status",)),
    delete("delete: body without kind", {"preconditions": {"uid": "other"}}),
    delete("delete: body of another kind", {"kind": "Sandbox", "apiVersion": "agents.x-k8s.io/v1beta1"}),
    delete(
        "delete: body in the kind's own version",
        {"kind": "DeleteOptions", "apiVersion": "agents.x-k8s.io/v1beta1"},
        show=("status",),
    ),
    delete("delete: body with an unknown field", options(banana=1), show=("status",)),
    delete("delete: body is a list", []),
    delete(
        "delete: finalizers hold it",
        given=(HELD,),
        show=("kind", "metadata.finalizers", "metadata.deletionGracePeriodSeconds", "metadata.generation"),
    ),
    delete(
        "delete: again while it is held", given=LEAVING, show=("kind", "metadata.finalizers", "metadata.generation")
    ),
    delete(
        "delete: dryRun while it is held", options(dryRun=["All"]), given=(HELD,), show=("kind", "metadata.finalizers")
    ),
    Case(
        "leaving: a finalizer may not be added",
        f"PATCH {PATH}",
        {"metadata": {"finalizers": ["example.com/a", "example.com/b"]}},
        MERGE,
        given=LEAVING,
    ),
    Case(
        "leaving: the last finalizer removed ends it",
        f"PATCH {PATH}",
        {"metadata": {"finalizers": None}},
        MERGE,
        given=LEAVING,
        show=("kind", "metadata.finalizers"),
    ),
    Case(
        "leaving: spec may change",
        f"PATCH {PATH}",
        {"spec": {"operatingMode": "Suspended"}},
        MERGE,
        given=LEAVING,
        show=("metadata.generation",),
    ),
    Case(
        "leaving: status may change",
        f"PATCH {PATH}/status",
        {"status": {"nodeName": "n"}},
        MERGE,
        given=LEAVING,
        show=("status",),
    ),
    Case(
        "leaving: deletionTimestamp cannot be removed",
        f"PATCH {PATH}",
        {"metadata": {"deletionTimestamp": None, "labels": {"a": "b"}}},
        MERGE,
        given=LEAVING,
        show=("metadata.labels", "metadata.finalizers"),
    ),
    Case("leaving: the name is taken", f"POST {SANDBOXES}", sandbox(), given=LEAVING),
    Case("gone: get after delete", f"GET {PATH}", given=(SANDBOX, Step(f"DELETE {PATH}"))),
    Case(
        "gone: get after the last finalizer",
        f"GET {PATH}",
        given=(*LEAVING, Step(f"PATCH {PATH}", {"metadata": {"finalizers": None}}, MERGE)),
    ),
    delete(
        "delete: core kind",
        path=f"{CORE}/configmaps/a",
        given=(CONFIG,),
        show=("status", "details.name", "details.kind"),
    ),
    delete(
        "delete: pod without a node",
        path=f"{CORE}/pods/a",
        given=(POD,),
        show=("kind", "metadata.deletionGracePeriodSeconds"),
    ),
    delete(
        "delete: pod of no grace",
        options(gracePeriodSeconds=0),
        path=f"{CORE}/pods/a",
        given=(POD,),
        show=("kind", "metadata.deletionGracePeriodSeconds"),
    ),
    delete(
        "delete: pod on a node keeps its grace",
        options(gracePeriodSeconds=7),
        path=f"{CORE}/pods/b",
        given=(
            Step(
                f"POST {CORE}/pods",
                {
                    "apiVersion": "v1",
                    "kind": "Pod",
                    "metadata": metadata("b"),
                    "spec": {"nodeName": "n", "containers": [{"name": "main", "image": "x"}]},
                },
            ),
        ),
        show=("kind", "metadata.deletionGracePeriodSeconds", "metadata.generation"),
    ),
    delete(
        "delete: pod of negative grace",
        options(gracePeriodSeconds=-3),
        path=f"{CORE}/pods/b",
        given=(
            Step(
                f"POST {CORE}/pods",
                {
                    "apiVersion": "v1",
                    "kind": "Pod",
                    "metadata": metadata("b"),
                    "spec": {"nodeName": "n", "containers": [{"name": "main", "image": "x"}]},
                },
            ),
        ),
        show=("kind", "metadata.deletionGracePeriodSeconds"),
    ),
    delete("deletecollection", path=SANDBOXES, show=("kind", "items.0.metadata.name")),
    delete(
        "deletecollection: by label",
        path=f"{SANDBOXES}?labelSelector=x%3Dy",
        given=(SANDBOX, Step(f"POST {SANDBOXES}", sandbox(metadata=metadata("b", labels={"x": "y"})))),
        show=("items.0.metadata.name", "items.1"),
    ),
    delete("deletecollection: of nothing", path=SANDBOXES, given=(), show=("kind", "items")),
    delete("deletecollection: bad selector", path=f"{SANDBOXES}?labelSelector=%3D%3D", given=()),
    delete("deletecollection: dryRun", options(dryRun=["All"]), path=SANDBOXES, show=("kind", "items.0.metadata.name")),
]
