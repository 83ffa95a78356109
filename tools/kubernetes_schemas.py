"""Makes src/sandpool/model/kubernetes.json from the OpenAPI v3 documents of a Kubernetes release.

    python tools/kubernetes_schemas.py <directory with api__v1_openapi.json and its siblings> [--check]

The documents are part of the Go module k8s.io/kubernetes, under api/openapi-spec/v3 (`go mod download -json
k8s.io/kubernetes@<version>` prints where it is). Kept is what the served kinds reach, with the first sentence of each
description. Dropped are defaults that only restate Go's zero value: nobody applies them.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

TARGET = Path(__file__).parent.parent / "src/sandpool/model/kubernetes.json"
PREFIX = "#/components/schemas/"
DOCUMENTS = (
    "api__v1",
    "apis__coordination.k8s.io__v1",
    "apis__networking.k8s.io__v1",
    "apis__node.k8s.io__v1",
    "apis__autoscaling__v1",
    "apis__authentication.k8s.io__v1",
    "apis__authorization.k8s.io__v1",
    "api",
    "apis",
    "version",
)
CORE = (
    "Namespace",
    "Pod",
    "Service",
    "PersistentVolumeClaim",
    "Event",
    "ConfigMap",
    "Secret",
    "ServiceAccount",
    "Node",
    "ResourceQuota",
)
META = "io.k8s.apimachinery.pkg.apis.meta.v1."
ROOTS = (
    *(f"io.k8s.api.core.v1.{kind}{suffix}" for kind in CORE for suffix in ("", "List")),
    *(
        f"io.k8s.api.{kind}{suffix}"
        for kind in ("coordination.v1.Lease", "networking.v1.NetworkPolicy", "node.v1.RuntimeClass")
        for suffix in ("", "List")
    ),
    "io.k8s.api.autoscaling.v1.Scale",
    "io.k8s.api.authentication.v1.TokenRequest",
    "io.k8s.api.authentication.v1.SelfSubjectReview",
    "io.k8s.api.authorization.v1.SelfSubjectAccessReview",
    *(
        META + name
        for name in (
            "ObjectMeta",
            "ListMeta",
            "Status",
            "DeleteOptions",
            "WatchEvent",
            "Patch",
            "APIResourceList",
            "APIVersions",
            "APIGroup",
            "APIGroupList",
            "Condition",
            "LabelSelector",
        )
    ),
    "io.k8s.apimachinery.pkg.version.Info",
    "io.k8s.apimachinery.pkg.util.intstr.IntOrString",
    "io.k8s.apimachinery.pkg.api.resource.Quantity",
)
SERVED_GROUPS = {
    "",
    "agents.x-k8s.io",
    "extensions.agents.x-k8s.io",
    "coordination.k8s.io",
    "networking.k8s.io",
    "node.k8s.io",
    "autoscaling",
    "authentication.k8s.io",
    "authorization.k8s.io",
}


def references(node: Any) -> Iterator[str]:
    if isinstance(node, dict):
        if "$ref" in node:
            yield node["$ref"].removeprefix(PREFIX)
        for value in node.values():
            yield from references(value)
    elif isinstance(node, list):
        for value in node:
            yield from references(value)


def first_sentence(text: str) -> str:
    paragraph = text.strip().split("\n\n")[0]
    return re.split(r"(?<=[a-z)\"'`>0-9])\.\s", " ".join(paragraph.split()), maxsplit=1)[0].rstrip(".") + "."


def slim(schema: dict[str, Any], *, keep_default: bool = False) -> dict[str, Any]:
    """One schema without what we do not need. Only a property that need not be there can have a true default."""
    out: dict[str, Any] = {}
    for key, value in schema.items():
        match key:
            case "description":
                out[key] = first_sentence(value)
            case "default":
                if keep_default and value not in ({}, 0, False):
                    out[key] = value
            case "properties":
                required = schema.get("required", ())
                out[key] = {name: slim(sub, keep_default=name not in required) for name, sub in value.items()}
            case "items" | "additionalProperties" if isinstance(value, dict):
                out[key] = slim(value)
            case "allOf" | "oneOf":
                out[key] = [slim(sub) for sub in value]
            case "x-kubernetes-group-version-kind":
                out[key] = [gvk for gvk in value if gvk["group"] in SERVED_GROUPS and gvk["version"] == "v1"]
            case "x-kubernetes-unions":
                pass
            case _:
                out[key] = value
    only = out.get("allOf", ())
    if len(only) == 1 and len(out) == 1:
        return only[0]  # type: ignore[no-any-return]
    return out


def extract(directory: Path) -> dict[str, Any]:
    known: dict[str, Any] = {}
    for document in DOCUMENTS:
        known |= json.loads((directory / f"{document}_openapi.json").read_text())["components"]["schemas"]
    wanted = [root for root in ROOTS if root in known]
    reached: dict[str, Any] = {}
    while wanted:
        name = wanted.pop()
        if name not in reached:
            reached[name] = slim(known[name])
            wanted += references(known[name])
    missing = set(ROOTS) - set(reached)
    if missing:
        raise SystemExit(f"not in these documents: {sorted(missing)}")
    return reached


def render(schemas: dict[str, Any]) -> str:
    """Compact, and one definition on each line: a new release shows as a readable difference."""
    lines = (
        f"{json.dumps(name)}:{json.dumps(schema, sort_keys=True, separators=(',', ':'))}"
        for name, schema in sorted(schemas.items())
    )
    return "{\n" + ",\n".join(lines) + "\n}\n"


def main() -> None:
    paths = [argument for argument in sys.argv[1:] if not argument.startswith("--")]
    if len(paths) != 1:
        raise SystemExit(__doc__)
    text = render(extract(Path(paths[0])))
    if "--check" in sys.argv:
        raise SystemExit(0 if TARGET.read_text() == text else f"{TARGET} differs: run this without --check")
    TARGET.write_text(text)
    print(f"{TARGET}: {len(text)} bytes")


if __name__ == "__main__":
    main()
