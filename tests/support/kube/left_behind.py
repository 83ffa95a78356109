"""A namespace in use, as another implementation leaves it behind, and what must be the same afterwards."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from sandpool.kube.api import Api
from sandpool.model.claim import SandboxClaim
from sandpool.model.conditions import Condition
from sandpool.model.kinds import (
    CLAIMS,
    PERSISTENT_VOLUME_CLAIMS,
    PODS,
    POOLS,
    SANDBOXES,
    SERVICES,
    TEMPLATES,
)
from sandpool.model.metadata import Object, Uid
from sandpool.model.patches import merge_patch
from support.kube.other_installation import Installation, condition

MEMBERS = ("python-x7k2p", "python-b9cwq", "python-zzt4d")
BOUND = {"warm": "python-m4m4m", "cold": "cold", "old": "python-l9l9l", "served": "served"}
RUNNING = (*MEMBERS, *BOUND.values(), "mine")
KEPT = (SANDBOXES, PODS, CLAIMS, POOLS, TEMPLATES, SERVICES, PERSISTENT_VOLUME_CLAIMS)
Seed = Callable[[Api], Awaitable[None]]


def left_behind(version: str = "v1beta1", strategy: str = "Recreate", namespace: str = "default") -> Seed:
    """A full pool, claims of every history, and sandboxes that users made themselves."""

    async def seed(api: Api) -> None:
        other = Installation(api, version, namespace)
        await other.template()
        pool = await other.pool(len(MEMBERS), updateStrategy={"type": strategy})
        for name in MEMBERS:
            await other.member(pool, name)
        for name, sandbox in BOUND.items():
            claim = await other.claim(name)
            await other.bound(claim, sandbox, legacy=name == "old", service=name == "served")
            if name == "old":
                await other.claims_policy(claim)
        await other.bare("mine")
        await other.bare("asleep", suspended=True)
        await _expired(api, other, namespace)

    return seed


async def _expired(api: Api, other: Installation, namespace: str) -> None:
    """A claim whose time was up, and that was to be kept."""
    await other.claim("ended", lifecycle={"shutdownTime": "2025-12-24T18:00:00Z"})
    over = condition("Ready", "False", "ClaimExpired", "Claim expired. Sandbox cleanup initiated.")
    await api.patch_status(CLAIMS, "ended", merge_patch({"status": {"conditions": [over]}}), namespace)


async def identities(api: Api, namespace: str = "default") -> dict[str, dict[str, Uid]]:
    """Of everything that must outlive the change; nothing of it is leaving."""
    found: dict[str, dict[str, Uid]] = {}
    for resource in KEPT:
        objects: tuple[Object, ...] = (await api.list(resource, namespace)).items  # type: ignore[misc]
        assert not [each.metadata.name for each in objects if each.metadata.leaving]
        found[resource.plural] = {each.metadata.name: each.metadata.uid for each in objects}
    return found


def essence(claim: SandboxClaim) -> tuple[Any, ...]:
    """What clients act on. How a condition is worded may differ."""
    return claim.status.sandbox, [_unworded(one) for one in claim.status.conditions]


def _unworded(one: Condition) -> Condition:
    return msgspec.structs.replace(one, message="")
