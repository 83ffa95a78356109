"""The options of an installation by command, and the names and labels of its objects. The Helm chart has more options; its defaults are the same."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from sandpool.model.names import dns_label
from sandpool.version import __version__

NAME = "sandpool"
CONTROLLER = "sandpool-controller"
ROUTER = "sandpool-router"
NAMESPACE = "agent-sandbox-system"
"""The namespace that other implementations use, too: the lease excludes them only there, and sandboxes admit the router from there."""
IMAGE = f"{CONTROLLER}:{__version__}"


@dataclass(frozen=True, slots=True)
class Settings:
    namespace: str = NAMESPACE
    image: str = IMAGE
    watch_namespaces: tuple[str, ...] = ()  # none: all of them
    router: bool = True  # whether a router runs beside the controller

    def wrong(self) -> Iterator[str]:
        """The problems of these settings, one sentence each."""
        for flag, name in [
            ("--namespace", self.namespace),
            *(("--watch-namespaces", n) for n in self.watch_namespaces),
        ]:
            if problems := dns_label(name):
                yield f"{flag}: {name!r} cannot be the name of a namespace: {problems[0]}"
        for name in sorted({n for n in self.watch_namespaces if self.watch_namespaces.count(n) > 1}):
            yield f"--watch-namespaces names {name!r} twice; name it once"
        if not self.image or len(self.image.split()) != 1 or self.image.strip() != self.image:
            yield f"--image {self.image!r} is not the name of an image; write for example registry.example.com/{IMAGE}"


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
    """The metadata of an object; without a namespace, of a cluster-scoped one."""
    return {"name": name, **({"namespace": namespace} if namespace else {}), "labels": labels(component)}
