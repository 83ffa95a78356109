"""The controllers of one process on a cluster: one set for all namespaces, or one for each that is watched.

Sets share nothing but the way to the server, what they tell and the lease; each counts for itself, because two that counted
into one set of metrics would hide each other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

from sandpool.app.controllers import ControllerOptions, Controllers, Telling, assemble
from sandpool.base.clock import Clock
from sandpool.controllers.old_references import tell_of_old_references
from sandpool.kube.api import Api
from sandpool.kube.lanes import LaneGate
from sandpool.loop.lease import Elector
from sandpool.loop.manager import Parts
from sandpool.loop.reflector import Reflector
from sandpool.model.kinds import SANDBOXES
from sandpool.telemetry.metrics import Metrics


@dataclass(frozen=True, slots=True)
class Scoped:
    """All sets together, for one manager."""

    parts: Parts
    metrics: tuple[Metrics, ...]
    calm: Callable[[], bool]  # nobody waits for anything


def scoped(
    namespaces: Sequence[str],
    api: Api,
    clock: Clock,
    random: Callable[[], float],
    telling: Telling,
    options: ControllerOptions,
    elector: Elector | None,
    *,
    extensions: bool = True,
    lanes: LaneGate | None = None,
) -> Scoped:
    """No namespaces: all of them. Without `extensions`, sandboxes alone. `lanes`: those that the Api's writes take."""
    tellings = [replace(telling, metrics=Metrics()) for _ in namespaces] or [telling]
    sets = [
        assemble(api, clock, random, one, options, namespace=namespace, lanes=lanes)
        for namespace, one in zip(namespaces or ("",), tellings, strict=True)
    ]
    each = [_parts(one, extensions) for one in sets]

    async def prepare() -> None:
        for parts in each:
            if parts.prepare is not None:
                await parts.prepare()
            tell_of_old_references(reflector.cache for reflector in parts.reflectors)

    parts = Parts(
        reflectors=tuple(chain.from_iterable(parts.reflectors for parts in each)),
        controllers=tuple(chain.from_iterable(parts.controllers for parts in each)),
        services=tuple(chain.from_iterable(parts.services for parts in each)),
        elector=elector,
        prepare=prepare,
    )
    own = [telling.metrics] if namespaces else []
    return Scoped(parts, (*own, *(one.metrics for one in tellings)), lambda: all(one.rush.calm for one in sets))


def _parts(made: Controllers, extensions: bool) -> Parts:
    if extensions:
        return made.parts()
    # The definitions of the other kinds may be missing, so nobody asks for them.
    return Parts(
        reflectors=tuple(reflector for reflector in made.reflectors if _of_sandboxes(reflector)),
        controllers=(made.sandbox.loop,),
    )


def _of_sandboxes(reflector: Reflector[Any]) -> bool:
    resource = reflector.cache.resource
    return resource == SANDBOXES or (resource.group == "" and resource.namespaced)
