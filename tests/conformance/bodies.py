"""Small valid objects as JSON, to be varied by the tests."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def metadata(name: str = "a", **more: Any) -> dict[str, Any]:
    return {"name": name, **more}


def pod_spec(**more: Any) -> dict[str, Any]:
    return {"containers": [{"name": "main", "image": "python"}], **more}


def sandbox(name: str = "a", spec: Mapping[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    return {
        "apiVersion": "agents.x-k8s.io/v1beta1",
        "kind": "Sandbox",
        "metadata": metadata(name),
        "spec": {"podTemplate": {"spec": pod_spec()}, **(spec or {})},
        **more,
    }


def extension(kind: str, spec: Mapping[str, Any], name: str = "a", **more: Any) -> dict[str, Any]:
    group = "extensions.agents.x-k8s.io/v1beta1"
    return {"apiVersion": group, "kind": kind, "metadata": metadata(name), "spec": dict(spec), **more}


def pool(name: str = "a", **spec: Any) -> dict[str, Any]:
    return extension("SandboxWarmPool", {"sandboxTemplateRef": {"name": "t"}, **spec}, name)


def claim(name: str = "a", **spec: Any) -> dict[str, Any]:
    return extension("SandboxClaim", {"warmPoolRef": {"name": "p"}, **spec}, name)


def template(name: str = "a", **spec: Any) -> dict[str, Any]:
    return extension("SandboxTemplate", {"podTemplate": {"spec": pod_spec()}, **spec}, name)


def core(kind: str, name: str = "a", **more: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": kind, "metadata": metadata(name), **more}


def pod(name: str = "a", **spec: Any) -> dict[str, Any]:
    return core("Pod", name, spec=pod_spec(**spec))


def lease(name: str = "a", **spec: Any) -> dict[str, Any]:
    return {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata(name), "spec": spec}


def sandbox_with(**meta: Any) -> dict[str, Any]:
    """A sandbox whose metadata has these extra fields."""
    return sandbox(metadata=metadata(**meta))
