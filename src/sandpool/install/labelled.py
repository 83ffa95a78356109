"""The labels that everything of an installation carries, and those by which its pods are found."""

from __future__ import annotations

from typing import Any

from sandpool.install.settings import NAME
from sandpool.version import __version__


def selector(component: str) -> dict[str, str]:
    return {
        "app.kubernetes.io/name": NAME,
        "app.kubernetes.io/instance": NAME,
        "app.kubernetes.io/component": component,
    }


def labels(component: str) -> dict[str, str]:
    return {
        **selector(component),
        "app.kubernetes.io/version": __version__,
        "app.kubernetes.io/managed-by": NAME,
    }


SELECTOR = selector("controller")
LABELS = labels("controller")


def labelled(name: str, namespace: str = "", component: str = "controller") -> dict[str, Any]:
    """The metadata of an object of that name; without a namespace, of one that is in none."""
    return {"name": name, **({"namespace": namespace} if namespace else {}), "labels": labels(component)}
