"""The compiled schema and the rules of each kind: created on first use and cached.

Kubernetes has the defaults and allowed values of its own kinds in code. Here they are tables (one file per kind in kinds/) that are merged into
the schema. A path in such a table names fields from the root, with `[]` after a list: `spec.containers[].terminationMessagePolicy`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import msgspec

from sandpool.controlplane.admission.dialect import Dialect, Schema
from sandpool.controlplane.admission.kinds import (
    config,
    persistent_volume_claim,
    pod,
    quota,
    sandbox,
    service,
    small_kinds,
)
from sandpool.controlplane.admission.kinds.rules import KindRules
from sandpool.controlplane.admission.scalars import Check
from sandpool.controlplane.admission.schema_compiler import compile_schema
from sandpool.model import kinds, schemas
from sandpool.model.kinds import OURS
from sandpool.model.resource import Resource

_PLAIN = KindRules()
_RULES: dict[Resource[Any], KindRules] = {
    kinds.SANDBOXES: sandbox.SANDBOX,
    kinds.CLAIMS: sandbox.CLAIM,
    kinds.NAMESPACES: small_kinds.NAMESPACE,
    kinds.PODS: pod.POD,
    kinds.SERVICES: service.SERVICE,
    kinds.PERSISTENT_VOLUME_CLAIMS: persistent_volume_claim.CLAIM,
    kinds.EVENTS: small_kinds.EVENT,
    kinds.CONFIG_MAPS: config.CONFIG_MAP,
    kinds.SECRETS: config.SECRET,
    kinds.SERVICE_ACCOUNTS: small_kinds.SERVICE_ACCOUNT,
    kinds.NODES: small_kinds.NODE,
    kinds.RESOURCE_QUOTAS: quota.RESOURCE_QUOTA,
    kinds.LEASES: small_kinds.LEASE,
    kinds.NETWORK_POLICIES: small_kinds.NETWORK_POLICY,
    kinds.RUNTIME_CLASSES: small_kinds.RUNTIME_CLASS,
}


def rules_for(resource: Resource[Any]) -> KindRules:
    return _RULES.get(resource, _PLAIN)


MOST_BODIES = 128  # cached of one kind
LARGEST_BODY = 8 * 1024  # bytes of a body that is cached

_ANYTHING: Schema = {}
_encode = msgspec.json.Encoder().encode


@dataclass(frozen=True, slots=True)
class Compiled:
    """What `admit` needs to know about one kind."""

    custom: bool  # validated like a custom resource, not decoded like a built-in kind
    body: Check  # everything except metadata
    status: Check
    rules: KindRules
    admitted: AdmittedBodies | None  # for kinds with many equal bodies


@cache
def compiled(resource: Resource[Any]) -> Compiled:
    custom = resource in OURS
    rules = rules_for(resource)
    dialect = Dialect.CUSTOM if custom else Dialect.BUILT_IN
    schema = schemas.structural(resource) if custom else _completed(schemas.structural(resource), rules)
    properties = {
        **schema["properties"],
        "apiVersion": {"type": "string", "default": resource.api_version},
        "kind": {"type": "string", "default": resource.kind},
        "metadata": _ANYTHING,
    }
    required = [name for name in schema.get("required", ()) if name != "metadata"]
    root = {**schema, "properties": properties, "required": required}
    status = compile_schema(properties.get("status", _ANYTHING), dialect)
    return Compiled(custom, compile_schema(root, dialect), status, rules, AdmittedBodies() if rules.cacheable else None)


@cache
def metadata_check() -> Check:
    """The check of metadata, for all kinds: ObjectMeta is decoded into a Go struct even for custom resources."""
    return compile_schema(optional(schemas.metadata_schema()), Dialect.BUILT_IN)


def _completed(schema: Schema, rules: KindRules) -> Schema:
    schema = overlaid(overlaid(schema, "default", rules.defaults), "enum", rules.values)
    loose = {name: optional(sub) for name, sub in schema["properties"].items() if name in rules.loose}
    required = [name for name in schema.get("required", ()) if name not in rules.loose]
    return {**schema, "properties": {**schema["properties"], **loose}, "required": required}


def overlaid(schema: Schema, keyword: str, table: Mapping[str, Any]) -> Schema:
    """A copy of the schema in which `keyword` is set at every path of the table."""
    for path, value in table.items():
        schema = _set(schema, path.replace("[]", ".[]").split("."), keyword, value)
    return schema


def _set(schema: Schema, steps: list[str], keyword: str, value: Any) -> Schema:
    if not steps:
        return {**schema, keyword: value}
    step, rest = steps[0], steps[1:]
    if step == "[]":
        return {**schema, "items": _set(schema["items"], rest, keyword, value)}
    properties = schema["properties"]
    return {**schema, "properties": {**properties, step: _set(properties[step], rest, keyword, value)}}


def optional(schema: Schema) -> Schema:
    """A copy of the schema in which nothing is required."""
    out = {key: value for key, value in schema.items() if key != "required"}
    if "properties" in out:
        out["properties"] = {name: optional(sub) for name, sub in out["properties"].items()}
    for key in ("items", "additionalProperties"):
        if isinstance(out.get(key), dict):
            out[key] = optional(out[key])
    return out


class AdmittedBodies:
    """A cache of recently admitted bodies of one kind: members of a pool differ only in their metadata.

    The key is the encoded body without metadata, so the cached result is what another walk would return. Only bodies without findings are
    cached, and only for kinds whose rules ignore metadata. Results are shared, because documents are never changed in place.
    """

    __slots__ = ("_admitted",)

    def __init__(self) -> None:
        self._admitted: dict[bytes, dict[str, Any]] = {}

    def find(self, body: dict[str, Any]) -> tuple[bytes, dict[str, Any] | None]:
        """The key of a body, and its admitted form if it is cached. The metadata of that form must be ignored."""
        key = _encode({**body, "metadata": None})
        return key, self._admitted.get(key)

    def keep(self, key: bytes, admitted: dict[str, Any]) -> None:
        if len(key) > LARGEST_BODY:
            return
        if len(self._admitted) >= MOST_BODIES:
            del self._admitted[next(iter(self._admitted))]
        self._admitted[key] = {**admitted, "metadata": None}
