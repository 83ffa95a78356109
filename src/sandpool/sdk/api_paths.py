"""Builds paths of the Kubernetes API. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import quote, urlencode

EXTENSIONS = "extensions.agents.x-k8s.io/v1beta1"
AGENTS = "agents.x-k8s.io/v1beta1"


def api_path(version: str, resource: str, namespace: str = "", name: str = "", subresource: str = "") -> str:
    """`version` is `v1` for the core group, else GROUP/VERSION."""
    parts = ["api" if "/" not in version else "apis", version]
    if namespace:
        parts += ["namespaces", quote(namespace, safe="")]
    parts += [resource, *(quote(part, safe="") for part in (name, subresource) if part)]
    return "/" + "/".join(parts)


def claims(namespace: str, name: str = "") -> str:
    return api_path(EXTENSIONS, "sandboxclaims", namespace, name)


def pools(namespace: str, name: str = "") -> str:
    return api_path(EXTENSIONS, "sandboxwarmpools", namespace, name)


def sandboxes(namespace: str, name: str = "") -> str:
    return api_path(AGENTS, "sandboxes", namespace, name)


def pods(namespace: str, name: str = "") -> str:
    return api_path("v1", "pods", namespace, name)


def with_query(path: str, query: Mapping[str, str | int]) -> str:
    """Leaves out empty values, but not 0."""
    asked = {key: value for key, value in query.items() if value != ""}
    return f"{path}?{urlencode(asked, quote_via=quote)}" if asked else path
