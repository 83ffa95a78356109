"""The compiled form of one kind: made on first use, kept for good."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

from sandpool.controlplane.admission.approved import Approved
from sandpool.controlplane.admission.compile import compile_schema
from sandpool.controlplane.admission.dialect import Dialect, Schema
from sandpool.controlplane.admission.kinds.registry import rules_for
from sandpool.controlplane.admission.kinds.rules import KindRules
from sandpool.controlplane.admission.leaves import Check
from sandpool.controlplane.admission.overlay import optional, overlaid
from sandpool.model import schemas
from sandpool.model.kinds import OURS
from sandpool.model.resource import Resource

_ANYTHING: Schema = {}


@dataclass(frozen=True, slots=True)
class Compiled:
    custom: bool  # checked as a server checks custom resources, not as it decodes its own kinds
    body: Check  # everything but metadata
    status: Check
    rules: KindRules
    approved: Approved | None  # of kinds of which many are made alike


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
    return Compiled(custom, compile_schema(root, dialect), status, rules, Approved() if rules.alike else None)


@cache
def metadata_check() -> Check:
    """ObjectMeta is decoded into a Go struct for every kind, also for custom resources."""
    return compile_schema(optional(schemas.metadata_schema()), Dialect.BUILT_IN)


def _completed(schema: Schema, rules: KindRules) -> Schema:
    schema = overlaid(overlaid(schema, "default", rules.defaults), "enum", rules.values)
    loose = {name: optional(sub) for name, sub in schema["properties"].items() if name in rules.loose}
    required = [name for name in schema.get("required", ()) if name not in rules.loose]
    return {**schema, "properties": {**schema["properties"], **loose}, "required": required}
