"""The rules of one kind that are not in its schema, as a value."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from sandpool.controlplane.admission.name_rules import NameRule, dns_subdomain
from sandpool.kube.errors import Cause

Body: TypeAlias = dict[str, Any]


@dataclass(frozen=True, slots=True)
class KindRules:
    """The rules of one kind. `prepare` completes an object before it is checked; `check` returns what is wrong with it. Both get the
    new object and the old one (None: it is created), and change neither in place."""

    name: NameRule = dns_subdomain
    defaults: Mapping[str, Any] = field(default_factory=dict)  # path -> value, see kind_schemas.py
    values: Mapping[str, list[str]] = field(default_factory=dict)  # path -> the allowed values
    loose: tuple[str, ...] = ("status",)  # fields below which nothing is required
    keeps_status: bool = False  # a create may carry a status
    rounds: int = 3  # how often kube-apiserver checks the metadata of an update, and repeats its errors
    cacheable: bool = False  # admitted bodies are cached: `prepare` and `check` ignore the metadata of a new object
    known_finalizers: bool = False  # finalizers without a domain must be known to Kubernetes
    prepare: Callable[[Body, Body | None], Body] | None = None
    check: Callable[[Body, Body | None], list[Cause]] | None = None
