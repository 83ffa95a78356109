"""Patches and replacements: malformed ones, those that cannot be applied, and those that meet another state."""

from __future__ import annotations

from typing import Any

from conformance.bodies import core, metadata, pod, sandbox
from conformance.rest.case import (
    APPLY,
    CLAIM,
    CLAIMS,
    CONFIG,
    CORE,
    JSON,
    JSON_PATCH,
    MERGE,
    POD,
    SANDBOX,
    SANDBOXES,
    STRATEGIC,
    Case,
    Step,
    label,
)

PATH = f"{SANDBOXES}/a"
OWNED = Step(
    f"POST {SANDBOXES}",
    sandbox(metadata=metadata(labels={"a": "b"}, annotations={"x/y": "z"}, finalizers=["example.com/a"])),
)


def operations(
    name: str, body: Any, show: tuple[str, ...] = (), path: str = PATH, given: tuple[Step, ...] = (OWNED,)
) -> Case:
    return Case(name, f"PATCH {path}", body, JSON_PATCH, given=given, show=show)


def op(word: str, path: str, **more: Any) -> dict[str, Any]:
    return {"op": word, "path": path, **more}


ANNOTATION = op("add", "/metadata/annotations/late", value="x")
MALFORMED = [
    operations("json patch: an object", {"op": "add"}),
    operations("json patch: a string", b'"x"'),
    operations("json patch: malformed", b"[{"),
    operations("json patch: empty body", b""),
    operations("json patch: null", b"null", show=("metadata.generation",)),
    operations("json patch: no operations", [], show=("metadata.generation",)),
    operations("json patch: unknown op", [op("banana", "/spec")]),
    operations("json patch: op missing", [{"path": "/spec", "value": 1}]),
    operations("json patch: path missing", [{"op": "add", "value": 1}]),
    operations("json patch: value missing", [{"op": "add", "path": "/metadata/labels/q"}]),
    operations("json patch: path without slash", [op("add", "spec", value=1)]),
    operations("json patch: an item is a string", ["x"]),
    operations("json patch: from missing", [{"op": "move", "path": "/metadata/labels/q"}]),
]
APPLYING = [
    operations(
        "json patch: test holds",
        [op("test", "/metadata/uid", value="{uid}"), ANNOTATION],
        show=("metadata.annotations",),
    ),
    operations("json patch: test fails", [op("test", "/metadata/uid", value="other"), ANNOTATION]),
    operations("json patch: test of an absent path", [op("test", "/metadata/labels/q", value="x")]),
    operations(
        "json patch: test null of an absent path",
        [op("test", "/status", value=None), ANNOTATION],
        show=("metadata.annotations",),
    ),
    operations("json patch: test null of an absent nested path", [op("test", "/status/sandbox", value=None)]),
    operations("json patch: test null of a present path", [op("test", "/spec", value=None)]),
    operations("json patch: test of a number against a string", [op("test", "/metadata/generation", value="1")]),
    operations(
        "json patch: test of a list",
        [op("test", "/metadata/finalizers", value=["example.com/a"])],
        show=("metadata.generation",),
    ),
    operations("json patch: replace an absent path", [op("replace", "/metadata/labels/q", value="x")]),
    operations("json patch: replace below an absent path", [op("replace", "/status/nodeName", value="x")]),
    operations("json patch: remove an absent path", [op("remove", "/metadata/labels/q")]),
    operations("json patch: remove below an absent path", [op("remove", "/status/nodeName")]),
    operations("json patch: add below an absent path", [op("add", "/status/sandbox/name", value="x")]),
    operations(
        "json patch: add beyond the end of a list", [op("add", "/metadata/finalizers/5", value="example.com/b")]
    ),
    operations(
        "json patch: add at a negative index",
        [op("add", "/metadata/finalizers/-1", value="example.com/b")],
        show=("metadata.finalizers",),
    ),
    operations("json patch: remove beyond the end of a list", [op("remove", "/metadata/finalizers/5")]),
    operations(
        "json patch: add at the end of a list",
        [op("add", "/metadata/finalizers/-", value="example.com/b")],
        show=("metadata.finalizers",),
    ),
    operations(
        "json patch: add in front of a list",
        [op("add", "/metadata/finalizers/0", value="example.com/b")],
        show=("metadata.finalizers",),
    ),
    operations("json patch: index is a word", [op("replace", "/metadata/finalizers/x", value="example.com/b")]),
    operations(
        "json patch: escaped path",
        [op("replace", "/metadata/annotations/x~1y", value="w")],
        show=("metadata.annotations",),
    ),
    operations(
        "json patch: copy",
        [op("copy", "/metadata/labels/c", **{"from": "/metadata/labels/a"})],
        show=("metadata.labels",),
    ),
    operations(
        "json patch: copy from an absent path", [op("copy", "/metadata/labels/c", **{"from": "/metadata/labels/q"})]
    ),
    operations(
        "json patch: move",
        [op("move", "/metadata/labels/c", **{"from": "/metadata/labels/a"})],
        show=("metadata.labels",),
    ),
    operations(
        "json patch: move from an absent path", [op("move", "/metadata/labels/c", **{"from": "/metadata/labels/q"})]
    ),
    operations("json patch: the whole document", [op("replace", "", value={})]),
    operations("json patch: schema violation", [op("replace", "/spec/operatingMode", value="Odd")]),
    operations("json patch: required field removed", [op("remove", "/spec/podTemplate")]),
    operations("json patch: name changed", [op("replace", "/metadata/name", value="b")]),
    operations("json patch: uid changed", [op("replace", "/metadata/uid", value="other")]),
    operations("json patch: stale resourceVersion", [op("replace", "/metadata/resourceVersion", value="1")]),
    operations("json patch: kind changed", [op("replace", "/kind", value="Banana")]),
    operations("json patch: apiVersion removed", [op("remove", "/apiVersion")]),
    operations("json patch: label is a number", [op("add", "/metadata/labels/q", value=1)]),
    operations(
        "json patch: second operation fails, nothing is stored", [ANNOTATION, op("remove", "/metadata/labels/q")]
    ),
    operations("json patch: 10001 operations", [op("test", "/metadata/name", value="a")] * 10001),
    operations("json patch: of an absent object", [ANNOTATION], given=()),
    operations(
        "json patch: no difference keeps the revision",
        [op("replace", "/metadata/labels/a", value="b")],
        show=("metadata.generation",),
    ),
    operations("json patch: unknown field", [op("add", "/spec/banana", value=1)], show=("spec.banana",)),
    operations(
        "json patch: core kind test fails",
        [op("test", "/metadata/uid", value="other")],
        path=f"{CORE}/configmaps/a",
        given=(CONFIG,),
    ),
    operations(
        "json patch: core kind wrong type",
        [op("replace", "/data", value="x")],
        path=f"{CORE}/configmaps/a",
        given=(CONFIG,),
    ),
    operations(
        "json patch: core kind unknown field",
        [op("add", "/banana", value=1)],
        path=f"{CORE}/configmaps/a",
        given=(CONFIG,),
    ),
]

BINDING = [
    op("test", "/metadata/uid", value="{uid}"),
    op("test", "/status", value=None),
    op("add", "/status", value={"sandbox": {"name": "s"}}),
]
BOUND = Step(f"PATCH {CLAIMS}/a/status", {"status": {"sandbox": {"name": "t"}}}, MERGE)
CONDITIONED = Step(f"PATCH {CLAIMS}/a/status", {"status": {"conditions": []}}, MERGE)
BINDINGS = [
    operations("binding: first one wins", BINDING, path=f"{CLAIMS}/a/status", given=(CLAIM,), show=("status",)),
    operations("binding: second one loses", BINDING, path=f"{CLAIMS}/a/status", given=(CLAIM, BOUND)),
    operations(
        "binding: beside conditions",
        [op("test", "/status/sandbox", value=None), op("add", "/status/sandbox", value={"name": "s"})],
        path=f"{CLAIMS}/a/status",
        given=(CLAIM, CONDITIONED),
        show=("status",),
    ),
    operations(
        "binding: beside conditions, second one loses",
        [op("test", "/status/sandbox", value=None)],
        path=f"{CLAIMS}/a/status",
        given=(CLAIM, BOUND),
    ),
    operations(
        "binding: another claim of this name",
        [op("test", "/metadata/uid", value="other"), *BINDING[1:]],
        path=f"{CLAIMS}/a/status",
        given=(CLAIM,),
    ),
    operations(
        "binding: schema violation",
        [op("add", "/status", value={"sandbox": {"name": 1}})],
        path=f"{CLAIMS}/a/status",
        given=(CLAIM,),
    ),
    Case(
        "status merge patch: uid of another is ignored",
        f"PATCH {CLAIMS}/a/status",
        {"metadata": {"uid": "other"}, "status": {"sandbox": {"name": "s"}}},
        MERGE,
        given=(CLAIM,),
        show=("status",),
    ),
    Case(
        "status merge patch: stale resourceVersion",
        f"PATCH {CLAIMS}/a/status",
        {"metadata": {"resourceVersion": "1"}, "status": {"sandbox": {"name": "s"}}},
        MERGE,
        given=(CLAIM,),
    ),
]


def merge(
    name: str,
    body: Any,
    path: str = PATH,
    given: tuple[Step, ...] = (OWNED,),
    kind: str = MERGE,
    show: tuple[str, ...] = (),
) -> Case:
    return Case(name, f"PATCH {path}", body, kind, given=given, show=show)


MERGES = [
    merge("merge patch: malformed", b"{"),
    merge("merge patch: empty body", b""),
    merge("merge patch: a list", []),
    merge("merge patch: a string", b'"x"'),
    merge("merge patch: null", b"null"),
    merge("merge patch: nothing", {}, show=("metadata.generation",)),
    merge("merge patch: null removes", {"metadata": {"labels": {"a": None}}}, show=("metadata.labels",)),
    merge("merge patch: null of an absent field", {"spec": {"shutdownTime": None}}, show=("metadata.generation",)),
    merge(
        "merge patch: null of a default brings it back",
        {"spec": {"operatingMode": None}},
        show=("spec.operatingMode", "metadata.generation"),
    ),
    merge("merge patch: null of a required field", {"spec": {"podTemplate": None}}),
    merge(
        "merge patch: generation counts spec", {"spec": {"operatingMode": "Suspended"}}, show=("metadata.generation",)
    ),
    merge(
        "merge patch: generation ignores labels", {"metadata": {"labels": {"q": "r"}}}, show=("metadata.generation",)
    ),
    merge("merge patch: of an absent object", {}, given=()),
    merge("merge patch: kind changed", {"kind": "Banana"}),
    merge("merge patch: apiVersion changed", {"apiVersion": "apps/v1"}),
    merge("merge patch: schema violation", {"spec": {"operatingMode": "Odd"}}),
    merge("merge patch: wrong type", {"spec": "x"}),
    merge(
        "merge patch: matching uid and resourceVersion",
        {"metadata": {"uid": "{uid}", "resourceVersion": "{rv}", "labels": {"q": "r"}}},
        show=("metadata.labels",),
    ),
    merge(
        "merge patch: resourceVersion of before another write",
        {"metadata": {"resourceVersion": "{rv}", "labels": {"q": "r"}}},
        given=(OWNED, label(PATH, late="yes")),
    ),
    merge("merge patch: without a difference but stale", {"metadata": {"resourceVersion": "1"}}),
    merge("strategic patch: of a custom kind", {"metadata": {"labels": {"q": "r"}}}, kind=STRATEGIC),
    merge("strategic patch: malformed", b"{", f"{CORE}/pods/a", (POD,), STRATEGIC),
    merge("strategic patch: a list", [], f"{CORE}/pods/a", (POD,), STRATEGIC),
    merge(
        "strategic patch: adds to a set",
        {"metadata": {"finalizers": ["example.com/b"]}},
        f"{CORE}/pods/a",
        (Step(f"POST {CORE}/pods", {**pod(), "metadata": metadata(finalizers=["example.com/a"])}),),
        STRATEGIC,
        ("metadata.finalizers",),
    ),
    merge(
        "strategic patch: removes from a set",
        {"metadata": {"$deleteFromPrimitiveList/finalizers": ["example.com/a"]}},
        f"{CORE}/pods/a",
        (Step(f"POST {CORE}/pods", {**pod(), "metadata": metadata(finalizers=["example.com/a", "example.com/b"])}),),
        STRATEGIC,
        ("metadata.finalizers",),
    ),
    merge(
        "strategic patch: replaces a map",
        {"data": {"$patch": "replace", "n": "m"}},
        f"{CORE}/configmaps/a",
        (CONFIG,),
        STRATEGIC,
        ("data",),
    ),
    merge(
        "strategic patch: unknown directive",
        {"data": {"$patch": "banana"}},
        f"{CORE}/configmaps/a",
        (CONFIG,),
        STRATEGIC,
    ),
    merge(
        "strategic patch: list item without its key",
        {"spec": {"containers": [{"image": "x"}]}},
        f"{CORE}/pods/a",
        (POD,),
        STRATEGIC,
    ),
    merge("strategic patch: wrong type", {"data": "x"}, f"{CORE}/configmaps/a", (CONFIG,), STRATEGIC),
    merge("strategic patch: unknown field", {"banana": 1}, f"{CORE}/configmaps/a", (CONFIG,), STRATEGIC),
    merge("patch: media type of JSON", {}, kind=JSON),
    merge("patch: media type of nonsense", {}, kind="banana"),
    merge("patch: no media type", {}, kind=""),
    merge("patch: media type of JSON, core kind", {}, f"{CORE}/configmaps/a", (CONFIG,), JSON),
    merge("apply patch: without a manager", {**sandbox(), "metadata": metadata()}, kind=APPLY),
    merge(
        "apply patch: with a manager",
        {**sandbox(), "metadata": metadata()},
        f"{PATH}?fieldManager=me",
        kind=APPLY,
        show=("metadata.name",),
    ),
    merge("patch: force without apply", {}, f"{PATH}?force=true"),
    merge("patch: dryRun", {"metadata": {"labels": {"q": "r"}}}, f"{PATH}?dryRun=All", show=("metadata.labels",)),
]


def put(
    name: str, body: Any, path: str = PATH, given: tuple[Step, ...] = (SANDBOX,), show: tuple[str, ...] = ()
) -> Case:
    return Case(name, f"PUT {path}", body, given=given, show=show)


def version(value: str | None, **more: Any) -> dict[str, Any]:
    return metadata(**({"resourceVersion": value} if value is not None else {}), **more)


PUTS = [
    put(
        "put: current",
        sandbox(metadata=version("{rv}"), spec={"operatingMode": "Suspended"}),
        show=("metadata.generation", "spec.operatingMode"),
    ),
    put("put: no difference", sandbox(metadata=version("{rv}")), show=("metadata.generation",)),
    put("put: stale", sandbox(metadata=version("{rv}")), given=(SANDBOX, label(PATH, late="yes"))),
    put("put: resourceVersion missing", sandbox()),
    put("put: resourceVersion is nonsense", sandbox(metadata=version("banana"))),
    put("put: resourceVersion is 0", sandbox(metadata=version("0"))),
    put("put: name differs", sandbox(metadata=metadata("b", resourceVersion="{rv}"))),
    put("put: name missing", sandbox(metadata={"resourceVersion": "{rv}"})),
    put("put: namespace differs", sandbox(metadata=version("{rv}", namespace="elsewhere"))),
    put("put: uid differs", sandbox(metadata=version("{rv}", uid="other"))),
    put("put: absent", sandbox(), given=()),
    put("put: absent with a resourceVersion", sandbox(metadata=version("5")), given=()),
    put("put: absent, core kind", core("ConfigMap"), f"{CORE}/configmaps/a", ()),
    put(
        "put: core kind without resourceVersion",
        core("ConfigMap", data={"n": "m"}),
        f"{CORE}/configmaps/a",
        (CONFIG,),
        ("data",),
    ),
    put("put: core kind stale", core("ConfigMap", metadata=version("1")), f"{CORE}/configmaps/a", (CONFIG,)),
    put("put: kind differs", sandbox(kind="Banana", metadata=version("{rv}"))),
    put("put: invalid", sandbox(spec={"operatingMode": "Odd"}, metadata=version("{rv}"))),
    put("put: malformed", b"{"),
    put("put: empty body", b""),
    put(
        "put: labels are replaced",
        sandbox(metadata=version("{newest}")),
        given=(SANDBOX, label(PATH, late="yes")),
        show=("metadata.labels",),
    ),
]

CASES = [*MALFORMED, *APPLYING, *BINDINGS, *MERGES, *PUTS]
