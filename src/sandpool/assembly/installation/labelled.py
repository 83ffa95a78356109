"""The labels that everything of an installation carries, and those by which its pods are found."""

from __future__ import annotations

from typing import Any

from sandpool.assembly.installation.settings import NAME
from sandpool.version import __version__

SELECTOR = {
    "app.kubernetes.io/name": NAME,
    "app.kubernetes.io/instance": NAME,
    "app.kubernetes.io/component": "controller",
}
LABELS = {**SELECTOR, "app.kubernetes.io/version": __version__, "app.kubernetes.io/managed-by": NAME}


def labelled(name: str, namespace: str = "") -> dict[str, Any]:
    """The metadata of an object of that name; without a namespace, of one that is in none."""
    return {"name": name, **({"namespace": namespace} if namespace else {}), "labels": dict(LABELS)}
