"""What is driven from outside, by theme: each is given an open world and raises if somebody got out."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from support.escape import boxd, held, lifetime, limits, mounts, own_kernel, pools, proofs, pulls, volumes
from support.escape.world import World

THEMES = (
    limits,
    pools,
    lifetime,
    held,
    volumes,
    mounts,
    boxd,
    pulls,
    own_kernel,
    proofs,
)
SCENARIOS: dict[str, Callable[[World], Awaitable[None]]] = {
    each.__name__: each for theme in THEMES for each in theme.SCENARIOS
}
