"""Makes src/sandpool/controlplane/apiserver/protobuf_fields.json from the Go types of a Kubernetes release.

    python tools/kubernetes_protobuf.py <directory of the Go module k8s.io/api> <directory of k8s.io/apimachinery> [--check]

Kept are field numbers, JSON names and types of every message that the served kinds reach: what is needed to read the
protobuf bodies that kubectl sends for Kubernetes' own kinds. (`go mod download -json k8s.io/api@<version>` prints where the
modules are.) A field is "<json name> <type>"; see decode.py for the letters.
"""

from __future__ import annotations

import json
import re
import sys
from dataclasses import dataclass, field
from pathlib import Path

TARGET = Path(__file__).parent.parent / "src/sandpool/controlplane/apiserver/protobuf_fields.json"
PACKAGES = ("core", "coordination", "networking", "node", "autoscaling", "authentication", "authorization")
ROOTS = (
    *(f"core.{kind}" for kind in ("Namespace", "Pod", "Service", "PersistentVolumeClaim", "Event", "ConfigMap")),
    *(f"core.{kind}" for kind in ("Secret", "ServiceAccount", "Node", "ResourceQuota")),
    "coordination.Lease",
    "networking.NetworkPolicy",
    "node.RuntimeClass",
    "autoscaling.Scale",
    "authentication.TokenRequest",
    "authentication.SelfSubjectReview",
    "authorization.SelfSubjectAccessReview",
    "authorization.SelfSubjectRulesReview",
    "meta.DeleteOptions",
)
LEAVES = {
    "string": "s",
    "bool": "b",
    "int": "i",
    "int32": "i",
    "int64": "i",
    "[]byte": "y",
    "types.UID": "s",
    "types.NodeName": "s",
    "resource.Quantity": "q",
    "meta.Time": "t",
    "meta.MicroTime": "u",
    "intstr.IntOrString": "o",
    "meta.FieldsV1": "r",
    "runtime.RawExtension": "r",
}
_STRUCT = re.compile(r"^type (\w+) struct \{\n(.*?)^\}", re.MULTILINE | re.DOTALL)
_NAMED = re.compile(r"^type (\w+) (?!struct|interface|=)(\S+)\s*(?://.*)?$", re.MULTILINE)
_FIELD = re.compile(r'^\s+(?:\w+\s+)?(\S+)\s+`json:"([^"]*)"[^`]*?protobuf:"\w+,(\d+),', re.MULTILINE)


@dataclass
class Source:
    """The types of all packages, by `package.Type`."""

    structs: dict[str, list[tuple[str, str, str]]] = field(default_factory=dict)  # (number, json tag, Go type)
    named: dict[str, str] = field(default_factory=dict)

    def read(self, package: str, path: Path) -> None:
        text = path.read_text()
        for name, body in _STRUCT.findall(text):
            fields = [(number, tag, go_type) for go_type, tag, number in _FIELD.findall(body)]
            self.structs[f"{package}.{name}"] = fields
        for name, go_type in _NAMED.findall(text):
            self.named[f"{package}.{name}"] = go_type


def qualified(package: str, go_type: str) -> str:
    """`metav1.Time` and `v1.Toleration` by the package that they mean."""
    alias, dot, name = go_type.rpartition(".")
    if not dot:
        plain = go_type in {"string", "bool", "int", "int32", "int64", "[]byte"}
        return go_type if plain else f"{package}.{go_type}"
    known = {"metav1": "meta", "corev1": "core", "v1": "core"}
    return f"{known.get(alias, alias)}.{name}"


def kind_of(source: Source, package: str, go_type: str, found: set[str]) -> str:
    go_type = go_type.removeprefix("*")
    if go_type == "[]byte":
        return "y"
    if go_type.startswith("[]"):
        return "[" + kind_of(source, package, go_type[2:], found)
    if go_type.startswith("map["):
        return "{" + kind_of(source, package, go_type.partition("]")[2], found)
    name = qualified(package, go_type)
    if name in LEAVES:
        return LEAVES[name]
    home = name.partition(".")[0]
    if name in source.named:
        target = source.named[name]
        # A named list is a message of its own, with the elements as its field 1.
        return "l" if target.startswith("[]") else kind_of(source, home, target, found)
    if name not in source.structs:
        raise SystemExit(f"{name}: no such type in the modules given")
    found.add(name)
    return f"m:{name}"


def message(source: Source, name: str, found: set[str]) -> dict[str, str]:
    package = name.partition(".")[0]
    fields = {}
    for number, tag, go_type in source.structs[name]:
        json_name, *options = tag.split(",")
        kind = kind_of(source, package, go_type, found)
        if "inline" in options:
            fields[number] = f"= {kind}"
            continue
        droppable = "omitempty" in options and not go_type.startswith("*") and not kind.startswith("m:")
        fields[number] = f"{json_name} {'?' if droppable else ''}{kind}"
    return fields


def build(api: Path, machinery: Path) -> dict[str, dict[str, str]]:
    source = Source()
    for package in PACKAGES:
        source.read(package, api / package / "v1" / "types.go")
    source.read("meta", machinery / "pkg/apis/meta/v1/types.go")
    found = set(ROOTS)
    done: dict[str, dict[str, str]] = {}
    while found - done.keys():
        for name in sorted(found - done.keys()):
            done[name] = message(source, name, found)
    return dict(sorted(done.items()))


def main(arguments: list[str]) -> int:
    check = "--check" in arguments
    api, machinery = (Path(argument) for argument in arguments if argument != "--check")
    messages = build(api, machinery)
    lines = ",\n".join(
        f"{json.dumps(name)}:{json.dumps(fields, separators=(',', ':'))}" for name, fields in messages.items()
    )
    text = "{\n" + lines + "\n}\n"
    if check:
        return 0 if TARGET.read_text() == text else 1
    TARGET.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
