"""Query parameters of lists and watches: selectors, pages, revisions, timeouts, dry runs."""

from __future__ import annotations

from conformance.bodies import metadata, sandbox
from conformance.rest.case import AGENTS, CONFIG, CORE, POD, SANDBOX, SANDBOXES, Case, Step

B = Step(f"POST {SANDBOXES}", sandbox(metadata=metadata("b", labels={"x": "y"})))


def get(
    name: str, query: str, path: str = SANDBOXES, given: tuple[Step, ...] = (SANDBOX, B), show: tuple[str, ...] = ()
) -> Case:
    return Case(name, f"GET {path}?{query}", given=given, show=show)


def names(name: str, query: str, path: str = SANDBOXES) -> Case:
    return get(name, query, path, show=("items.0.metadata.name", "items.1.metadata.name"))


SELECTORS = [
    names("labels: equal", "labelSelector=x%3Dy"),
    names("labels: double equals", "labelSelector=x%3D%3Dy"),
    names("labels: not equal", "labelSelector=x!%3Dy"),
    names("labels: exists", "labelSelector=x"),
    names("labels: absent", "labelSelector=!x"),
    names("labels: in", "labelSelector=x+in+(y,z)"),
    names("labels: notin", "labelSelector=x+notin+(y,z)"),
    names("labels: two", "labelSelector=x,x%3Dy"),
    names("labels: greater than", "labelSelector=x%3E5"),
    get("labels: only an operator", "labelSelector=%3D%3D"),
    get("labels: in without a list", "labelSelector=x+in"),
    get("labels: in with an open list", "labelSelector=x+in+(y"),
    get("labels: bad key", "labelSelector=a%20b%3Dc"),
    get("labels: bad value", "labelSelector=a%3Db!c"),
    get("labels: greater than a word", "labelSelector=x%3Ey"),
    get("labels: trailing comma", "labelSelector=x%3Dy,", show=("kind",)),
    names("fields: name", "fieldSelector=metadata.name%3Da"),
    names("fields: name is not", "fieldSelector=metadata.name!%3Da"),
    names("fields: namespace", "fieldSelector=metadata.namespace%3D{ns}"),
    get("fields: unsupported of a custom kind", "fieldSelector=spec.operatingMode%3DRunning"),
    get("fields: unsupported of a core kind", "fieldSelector=data%3Dx", f"{CORE}/configmaps", (CONFIG,)),
    get("fields: malformed", "fieldSelector=banana"),
    get("fields: empty value", "fieldSelector=metadata.name%3D", show=("items.0",)),
    get(
        "fields: phase of pods",
        "fieldSelector=status.phase%3DPending",
        f"{CORE}/pods",
        (POD,),
        ("items.0.metadata.name",),
    ),
    get("fields: node of pods", "fieldSelector=spec.nodeName%3Dn", f"{CORE}/pods", (POD,), ("items",)),
    get("fields: reason of events", "fieldSelector=reason%3Dx", f"{CORE}/events", (), ("items",)),
    get(
        "fields: object of events",
        "fieldSelector=involvedObject.name%3Da,involvedObject.kind%3DPod",
        f"{CORE}/events",
        (),
        ("items",),
    ),
]
PAGES = [
    get("limit: 1", "limit=1", show=("items.0.metadata.name", "items.1", "metadata.remainingItemCount")),
    get(
        "limit: with a selector no count",
        "limit=1&labelSelector=!z",
        show=("items.0.metadata.name", "metadata.remainingItemCount"),
    ),
    get("limit: negative", "limit=-1"),
    get("limit: a word", "limit=abc"),
    get("limit: 0 is all", "limit=0", show=("items.1.metadata.name",)),
    get("limit: beyond 64 bits", "limit=99999999999999999999"),
    get("continue: nonsense", "continue=banana"),
    get("continue: nonsense with a limit", "continue=banana&limit=1"),
    get(
        "continue: with a resourceVersion",
        "continue=eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6MSwic3RhcnQiOiJhIn0&resourceVersion=5",
    ),
]
REVISIONS = [
    get("revision: a word", "resourceVersion=abc"),
    get("revision: negative", "resourceVersion=-5"),
    get("revision: 0", "resourceVersion=0", show=("kind",)),
    get(
        "revision: exact and present",
        "resourceVersion={newest}&resourceVersionMatch=Exact",
        show=("items.1.metadata.name",),
    ),
    get(
        "revision: exact and before the second",
        "resourceVersion={rv}&resourceVersionMatch=Exact",
        show=("items.0.metadata.name", "items.1"),
    ),
    get("revision: exact and 0", "resourceVersion=0&resourceVersionMatch=Exact"),
    get("revision: match without a revision", "resourceVersionMatch=Exact"),
    get("revision: match NotOlderThan without a revision", "resourceVersionMatch=NotOlderThan"),
    get("revision: match nonsense", "resourceVersion=1&resourceVersionMatch=Odd"),
    get(
        "revision: not older than present",
        "resourceVersion={newest}&resourceVersionMatch=NotOlderThan",
        show=("items.1.metadata.name",),
    ),
    get("revision: not older than the future", "resourceVersion=999999999&resourceVersionMatch=NotOlderThan"),
    get("revision: of a get", "resourceVersion=0", f"{SANDBOXES}/a", show=("metadata.name",)),
    get("revision: of a get, nonsense", "resourceVersion=abc", f"{SANDBOXES}/a"),
]
WATCHES = [
    get("watch: revision is a word", "watch=1&resourceVersion=abc"),
    get("watch: word is a boolean", "watch=banana&timeoutSeconds=1"),
    get("watch: timeoutSeconds is a word", "watch=1&timeoutSeconds=abc"),
    get("watch: timeoutSeconds is negative", "watch=1&timeoutSeconds=-1&resourceVersion={newest}"),
    get("watch: bad label selector", "watch=1&labelSelector=%3D%3D"),
    get("watch: unsupported field", "watch=1&fieldSelector=spec.operatingMode%3DRunning"),
    get("watch: initial events without match", "watch=1&sendInitialEvents=true"),
    get("watch: initial events with Exact", "watch=1&sendInitialEvents=true&resourceVersionMatch=Exact"),
    get("watch: match without initial events", "watch=1&resourceVersionMatch=NotOlderThan"),
    get("watch: initial events of a list", "sendInitialEvents=true&resourceVersionMatch=NotOlderThan"),
    get(
        "watch: initial events is nonsense",
        "watch=1&timeoutSeconds=1&sendInitialEvents=banana&resourceVersionMatch=NotOlderThan",
    ),
    get("watch: with a limit", "watch=1&limit=1&timeoutSeconds=1&resourceVersion={newest}"),
    get("watch: with a continue token", "watch=1&continue=x&timeoutSeconds=1"),
    get("watch: revision 1 is too old", "watch=1&resourceVersion=1&timeoutSeconds=1"),
    get("watch: ends at its timeout", "watch=1&resourceVersion={newest}&timeoutSeconds=1"),
    get("watch: of an unknown resource", "watch=1", AGENTS + "/namespaces/{ns}/bananas"),
]
DRY = [
    Case("dryRun: create", f"POST {SANDBOXES}?dryRun=All", sandbox(), show=("metadata.name", "metadata.generation")),
    Case("dryRun: nonsense", f"POST {SANDBOXES}?dryRun=Some", sandbox()),
    Case("dryRun: empty", f"POST {SANDBOXES}?dryRun=", sandbox(), show=("metadata.name",)),
    Case("dryRun: invalid object", f"POST {SANDBOXES}?dryRun=All", sandbox(spec={"operatingMode": "Odd"})),
    Case("dryRun: name taken", f"POST {SANDBOXES}?dryRun=All", sandbox(), given=(SANDBOX,)),
    Case("query: unknown parameter", f"GET {SANDBOXES}?banana=1", show=("kind",)),
    Case("query: pretty", f"GET {SANDBOXES}?pretty=true", show=("kind",)),
    Case("query: fieldManager too long", f"POST {SANDBOXES}?fieldManager={'x' * 129}", sandbox()),
]
CASES = [*SELECTORS, *PAGES, *REVISIONS, *WATCHES, *DRY]
