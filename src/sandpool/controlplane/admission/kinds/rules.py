"""The form in which a kind states its rules."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from sandpool.controlplane.admission.namerules import NameRule, dns_subdomain
from sandpool.kube.errors import Cause

Body: TypeAlias = dict[str, Any]


@dataclass(frozen=True, slots=True)
class KindRules:
    """`prepare` completes an object before it is checked, `check` says what is wrong with it; both get the new object and
    the old one (None: it is created) and never change either in place."""

    name: NameRule = dns_subdomain
    defaults: Mapping[str, Any] = field(default_factory=dict)  # path -> value, see overlay.py
    values: Mapping[str, list[str]] = field(default_factory=dict)  # path -> the only values
    loose: tuple[str, ...] = ("status",)  # fields below which nothing is required
    keeps_status: bool = False  # a create may carry a status
    rounds: int = 3  # how often a server looks at the metadata of an update
    alike: bool = False  # many are made alike, and `prepare` and `check` look at nothing of a new one's metadata
    known_finalizers: bool = False  # those without a domain must be ones that Kubernetes knows
    prepare: Callable[[Body, Body | None], Body] | None = None
    check: Callable[[Body, Body | None], list[Cause]] | None = None
