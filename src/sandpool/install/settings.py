"""What can be chosen about an installation by command. The Helm chart has more choices; its defaults are the same."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from sandpool.model.names import dns_label
from sandpool.version import __version__

NAME = "sandpool"
CONTROLLER = "sandpool-controller"
ROUTER = "sandpool-router"
NAMESPACE = "agent-sandbox-system"
"""Where other implementations run, too: the lease excludes them only there, and sandboxes let in the router from there."""
IMAGE = f"{CONTROLLER}:{__version__}"


@dataclass(frozen=True, slots=True)
class Settings:
    namespace: str = NAMESPACE
    image: str = IMAGE
    watch_namespaces: tuple[str, ...] = ()  # none: all of them
    router: bool = True  # whether a router runs beside the controller

    def wrong(self) -> Iterator[str]:
        """What cannot be installed so, one sentence each."""
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
