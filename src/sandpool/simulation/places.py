"""Where a run takes place: namespaces with their templates and pools, and nodes. A few of each, by seed."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random


@dataclass(frozen=True, slots=True)
class Place:
    namespace: str
    templates: tuple[str, ...]
    pools: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Places:
    all: tuple[Place, ...]
    nodes: tuple[str, ...]


def choose_places(chance: Random) -> Places:
    """Names repeat across namespaces on purpose: whoever mixes them up is found out."""
    places = tuple(
        Place(
            namespace,
            tuple(f"template-{number}" for number in range(chance.choice((1, 2)))),
            tuple(f"pool-{number}" for number in range(chance.choice((1, 1, 2)))),
        )
        for namespace in ("red", "blue")
    )
    return Places(places, tuple(f"node-{number}" for number in range(chance.choice((3, 4, 5)))))
