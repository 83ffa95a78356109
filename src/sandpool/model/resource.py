"""Describes a kind: its names, its REST path and the type that it decodes to."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Generic, TypeVar

from sandpool.model.metadata import Object

T = TypeVar("T", bound=Object)


@dataclass(frozen=True, slots=True)
class Column:
    """An additionalPrinterColumn: what `kubectl get` shows."""

    name: str
    type: str  # string, integer, number, boolean, date
    path: str  # the JSONPath dialect of CRDs
    description: str = ""
    priority: int = 0  # above 0: only with -o wide


@dataclass(frozen=True, slots=True)
class Scale:
    """Where the scale subresource finds its numbers."""

    spec_replicas: str = ".spec.replicas"
    status_replicas: str = ".status.replicas"
    selector: str = ".status.selector"


@dataclass(frozen=True, slots=True)
class Resource(Generic[T]):
    """One kind of object. Two are equal if group, version and plural are."""

    group: str  # "" is the core group
    version: str
    plural: str
    kind: str
    type: type[T] = field(compare=False)
    namespaced: bool = field(default=True, compare=False)
    singular: str = field(default="", compare=False)
    short_names: tuple[str, ...] = field(default=(), compare=False)
    categories: tuple[str, ...] = field(default=(), compare=False)
    has_status: bool = field(default=False, compare=False)
    scale: Scale | None = field(default=None, compare=False)
    columns: tuple[Column, ...] = field(default=(), compare=False)
    _hash: int = field(init=False, repr=False, compare=False, default=0)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_hash", hash((self.group, self.version, self.plural, self.kind)))

    def __hash__(self) -> int:
        return self._hash  # computed once, because every call uses it for look-ups

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def group_resource(self) -> str:
        """The name in Kubernetes' messages: `pods`, `sandboxes.agents.x-k8s.io`."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    def path(self, namespace: str = "", name: str = "", subresource: str = "") -> str:
        """The REST path. An empty namespace means all namespaces, or a cluster-scoped kind."""
        parts = ["/apis", self.group, self.version] if self.group else ["/api", self.version]
        if namespace and self.namespaced:
            parts += ["namespaces", namespace]
        parts.append(self.plural)
        if name:
            parts.append(name)
        if subresource:
            parts.append(subresource)
        return "/".join(parts)
