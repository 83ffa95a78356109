"""What is driven from outside, by theme: each is given an open world and raises if somebody got out."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from support import (
    escape_boxd,
    escape_held,
    escape_lifetime,
    escape_limits,
    escape_mounts,
    escape_own_kernel,
    escape_pools,
    escape_proofs,
    escape_pulls,
    escape_volumes,
)
from support.escape_world import World

THEMES = (
    escape_limits,
    escape_pools,
    escape_lifetime,
    escape_held,
    escape_volumes,
    escape_mounts,
    escape_boxd,
    escape_pulls,
    escape_own_kernel,
    escape_proofs,
)
SCENARIOS: dict[str, Callable[[World], Awaitable[None]]] = {
    each.__name__: each for theme in THEMES for each in theme.SCENARIOS
}
