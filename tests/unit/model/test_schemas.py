"""Schemas and CRDs: complete, self-contained, and as structural as a real API server demands."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from sandpool.model import kinds
from sandpool.model.crds import crds, crds_yaml, to_yaml
from sandpool.model.schemas import PREFIX, definition_name, definitions, metadata_schema, structural

ROOT = Path(__file__).parents[3]
META = "io.k8s.apimachinery.pkg.apis.meta.v1."


def nodes(schema: dict[str, Any], path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    yield path, schema
    for name, sub in schema.get("properties", {}).items():
        yield from nodes(sub, f"{path}.{name}")
    for key in ("items", "additionalProperties"):
        if isinstance(schema.get(key), dict):
            yield from nodes(schema[key], path + "[]")


def references(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        if isinstance(value.get("$ref"), str):
            yield value["$ref"]
        for child in value.values():
            yield from references(child)
    elif isinstance(value, list):
        for child in value:
            yield from references(child)


def test_definitions_refer_only_to_each_other() -> None:
    known = definitions()
    for reference in references(dict(known)):
        assert reference.startswith(PREFIX)
        assert reference.removeprefix(PREFIX) in known


@pytest.mark.parametrize("kind", kinds.ALL, ids=lambda kind: kind.plural)
def test_every_kind_and_its_list_is_defined(kind: Any) -> None:
    for suffix in ("", "List"):
        definition = definitions()[definition_name(kind) + suffix]
        expected = {"group": kind.group, "version": kind.version, "kind": kind.kind + suffix}
        assert expected in definition["x-kubernetes-group-version-kind"]
        assert definition["description"]


@pytest.mark.parametrize(
    "name",
    [
        *(META + name for name in ("ObjectMeta", "ListMeta", "Status", "DeleteOptions", "WatchEvent", "Patch")),
        META + "APIResourceList",
        "io.k8s.api.autoscaling.v1.Scale",
        "io.k8s.api.authentication.v1.TokenRequest",
        "io.k8s.api.authentication.v1.SelfSubjectReview",
        "io.k8s.api.authorization.v1.SelfSubjectAccessReview",
    ],
)
def test_what_every_server_speaks_is_defined(name: str) -> None:
    assert name in definitions()


@pytest.mark.parametrize("kind", kinds.ALL, ids=lambda kind: kind.plural)
def test_structural_schemas_stand_alone(kind: Any) -> None:
    schema = structural(kind)
    assert list(references(schema)) == []
    assert {"apiVersion", "kind", "metadata"} <= schema["properties"].keys()
    assert "resourceVersion" in schema["properties"]["metadata"]["properties"]
    for path, node in nodes(schema):
        assert "allOf" not in node, path
        assert "type" in node or node.get("x-kubernetes-int-or-string"), path


def test_metadata_stands_alone_too() -> None:
    assert metadata_schema()["properties"]["labels"]["type"] == "object"


def test_unknown_kinds_have_no_schema() -> None:
    from dataclasses import replace

    with pytest.raises(KeyError, match="widgets"):
        structural(replace(kinds.PODS, plural="widgets"))


@pytest.mark.parametrize("kind", kinds.OURS, ids=lambda kind: kind.plural)
def test_every_field_of_ours_is_explained(kind: Any) -> None:
    """`kubectl explain` reads the definitions; below a Kubernetes type the reference explains itself."""
    for path, node in nodes(definitions()[definition_name(kind)]):
        if not path.endswith("[]") and path != ".metadata":
            assert node.get("description"), path


def at(kind: Any, path: str) -> dict[str, Any]:
    node = structural(kind)
    for step in path.split("."):
        node = node["items"] if step == "[]" else node["properties"][step]
    return node


@pytest.mark.parametrize(
    ("kind", "path", "expected"),
    [
        (kinds.SANDBOXES, "spec", {"required": ["podTemplate"]}),
        (kinds.SANDBOXES, "spec.podTemplate", {"required": ["spec"]}),
        (kinds.SANDBOXES, "spec.podTemplate.spec", {"required": ["containers"]}),
        (
            kinds.SANDBOXES,
            "spec.podTemplate.spec.containers.[].ports.[].protocol",
            {"default": "TCP", "type": "string"},
        ),
        (kinds.SANDBOXES, "spec.shutdownPolicy", {"default": "Retain", "enum": ["Delete", "Retain"]}),
        (kinds.SANDBOXES, "spec.operatingMode", {"default": "Running", "enum": ["Running", "Suspended"]}),
        (kinds.SANDBOXES, "spec.shutdownTime", {"type": "string", "format": "date-time"}),
        (kinds.SANDBOXES, "spec.service", {"type": "boolean"}),
        (kinds.SANDBOXES, "spec.volumeClaimTemplates", {"x-kubernetes-list-type": "atomic"}),
        (kinds.SANDBOXES, "spec.volumeClaimTemplates.[]", {"required": ["spec"]}),
        (kinds.SANDBOXES, "spec.volumeClaimTemplates.[].metadata.name", {"minLength": 1, "maxLength": 63}),
        (
            kinds.SANDBOXES,
            "status.conditions",
            {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]},
        ),
        (
            kinds.SANDBOXES,
            "status.conditions.[]",
            {"required": ["type", "status", "lastTransitionTime", "reason", "message"]},
        ),
        (kinds.SANDBOXES, "status.podIPs", {"type": "array"}),
        (kinds.TEMPLATES, "spec.networkPolicyManagement", {"default": "Managed", "enum": ["Managed", "Unmanaged"]}),
        (kinds.TEMPLATES, "spec.envVarsInjectionPolicy", {"default": "Disallowed"}),
        (kinds.TEMPLATES, "spec.volumeClaimTemplatesPolicy", {"default": "Disallowed"}),
        (kinds.TEMPLATES, "spec.networkPolicy.egress.[].ports.[].port", {"x-kubernetes-int-or-string": True}),
        (kinds.POOLS, "spec.replicas", {"default": 1, "minimum": 0, "format": "int32"}),
        (kinds.POOLS, "spec", {"required": ["sandboxTemplateRef"]}),
        (
            kinds.POOLS,
            "spec.updateStrategy.type",
            {"default": "OnReplenish", "enum": ["Recreate", "OnReplenish", "RollingUpdate"]},
        ),
        (
            kinds.POOLS,
            "spec.updateStrategy.rollingUpdate.maxSurge",
            {"default": "25%", "x-kubernetes-int-or-string": True, "pattern": "^[0-9]+%$"},
        ),
        (kinds.POOLS, "status.observedGeneration", {"minimum": 0, "format": "int64"}),
        (
            kinds.CLAIMS,
            "spec.lifecycle.shutdownPolicy",
            {"default": "Retain", "enum": ["Delete", "DeleteForeground", "Retain"]},
        ),
        (kinds.CLAIMS, "spec.lifecycle.ttlSecondsAfterFinished", {"minimum": 0, "format": "int32"}),
        (kinds.CLAIMS, "spec.env", {"x-kubernetes-list-type": "atomic"}),
        (kinds.CLAIMS, "spec.env.[]", {"required": ["name", "value"]}),
        (kinds.CLAIMS, "spec.additionalPodMetadata.labels", {"type": "object"}),
        (kinds.CLAIMS, "status.sandbox.podIPs", {"type": "array"}),
        (
            kinds.PODS,
            "spec.containers",
            {"x-kubernetes-patch-merge-key": "name", "x-kubernetes-patch-strategy": "merge"},
        ),
        (kinds.PODS, "spec.containers.[].resources.limits", {"type": "object"}),
        (kinds.PODS, "spec.volumes", {"x-kubernetes-patch-strategy": "merge,retainKeys"}),
    ],
)
def test_what_the_schema_says(kind: Any, path: str, expected: dict[str, Any]) -> None:
    node = at(kind, path)
    assert {key: node.get(key) for key in expected} == expected


def test_quantities_of_built_in_kinds_may_be_fractions() -> None:
    limits = at(kinds.PODS, "spec.containers.[].resources.limits")["additionalProperties"]
    assert (limits["format"], limits["x-kubernetes-int-or-string"]) == ("quantity", True)
    ours = at(kinds.SANDBOXES, "spec.podTemplate.spec.containers.[].resources.limits")["additionalProperties"]
    assert "format" not in ours
    assert ours["anyOf"] == [{"type": "integer"}, {"type": "string"}]


def test_claims_of_a_sandbox_cannot_change() -> None:
    (rule,) = at(kinds.SANDBOXES, "spec")["x-kubernetes-validations"]
    assert rule["message"] == "volumeClaimTemplates is immutable"
    assert "oldSelf.volumeClaimTemplates" in rule["rule"]


@pytest.mark.parametrize("definition", crds(), ids=lambda crd: crd["metadata"]["name"])
def test_crds_obey_the_rules_of_structural_schemas(definition: dict[str, Any]) -> None:
    (version,) = definition["spec"]["versions"]
    assert version["name"] == "v1beta1"
    schema = version["schema"]["openAPIV3Schema"]
    assert schema["properties"]["metadata"] == {"type": "object"}
    for path, node in nodes(schema):
        assert not node.keys() & {"$ref", "allOf", "oneOf", "x-kubernetes-patch-strategy"}, path
        if node.get("x-kubernetes-list-type") == "map":
            item = node["items"]
            for key in node["x-kubernetes-list-map-keys"]:
                assert key in item.get("required", ()) or "default" in item["properties"][key], f"{path} {key}"
        if "default" in node and "enum" in node:
            assert node["default"] in node["enum"], path
    # kubectl apply keeps a copy in an annotation, and annotations end at 256 KiB.
    assert len(msgspec.json.encode(definition)) < 200 * 1024


def test_crds_name_their_kinds() -> None:
    names = {crd["metadata"]["name"]: crd["spec"]["names"] for crd in crds()}
    assert names["sandboxwarmpools.extensions.agents.x-k8s.io"] == {
        "kind": "SandboxWarmPool",
        "listKind": "SandboxWarmPoolList",
        "plural": "sandboxwarmpools",
        "singular": "sandboxwarmpool",
        "shortNames": ["swp"],
    }
    assert len(names) == 4


def test_crds_show_columns_and_subresources() -> None:
    versions = {crd["spec"]["names"]["plural"]: crd["spec"]["versions"][0] for crd in crds()}
    shown = {
        plural: [column["name"] for column in version.get("additionalPrinterColumns", []) if not column.get("priority")]
        for plural, version in versions.items()
    }
    assert shown == {
        "sandboxes": ["Ready", "Reason", "Age"],
        "sandboxtemplates": [],
        "sandboxwarmpools": ["Ready", "Desired", "Age"],
        "sandboxclaims": ["Ready", "Sandbox", "Reason", "Age"],
    }
    assert versions["sandboxes"]["subresources"] == {"status": {}}
    assert "subresources" not in versions["sandboxtemplates"]
    assert versions["sandboxwarmpools"]["subresources"]["scale"] == {
        "specReplicasPath": ".spec.replicas",
        "statusReplicasPath": ".status.replicas",
        "labelSelectorPath": ".status.selector",
    }


def test_the_files_are_what_the_types_say() -> None:
    files = {path.name: path.read_text() for path in (ROOT / "deploy/crds").glob("*.yaml")}
    assert files == {f"{crd['metadata']['name']}.yaml": to_yaml(crd) for crd in crds()}, (
        "run `make crds` to write deploy/crds again"
    )


def test_the_stream_holds_them_all() -> None:
    assert list(yaml.load_all(crds_yaml(), Loader=yaml.CSafeLoader)) == crds()


def test_importing_the_kinds_does_not_read_the_schemas() -> None:
    program = (
        "import sys, sandpool.model.kinds, sandpool.model.codec, sandpool.model.patches;"
        "assert 'sandpool.model.schemas' not in sys.modules and 'yaml' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
