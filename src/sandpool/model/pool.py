"""SandboxWarmPool: sandboxes of one template that run before they are claimed. Also converts its percentages to counts.

maxUnavailable and maxSurge may be numbers or percentages, which are rounded as in Deployments.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, ClassVar

from sandpool.model.conditions import Condition
from sandpool.model.fields import doc, one_of
from sandpool.model.metadata import Key, Metadata, Model
from sandpool.model.template import GROUP, VERSION

_PERCENT = re.compile(r"([0-9]{1,9})%", re.ASCII)  # Python refuses to parse numbers with thousands of digits
DEFAULT_REPLICAS = 1
DEFAULT_ROLLING = "25%"
PERCENT = "^[0-9]+%$"


class PercentError(ValueError):
    """Neither a number nor a percentage; the message names the value."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """The bounds of a rollout: how many members may be missing, and how many may be surplus."""

    unavailable: int
    surge: int


def count_of(value: int | str, total: int, *, up: bool) -> int:
    """A count unchanged, or a percentage of the total, rounded up or down."""
    if isinstance(value, int):
        return value
    found = _PERCENT.fullmatch(value)
    if found is None:
        raise PercentError(f'"{value}" is neither a number nor a percentage such as "25%"')
    parts = int(found[1]) * total
    return -(-parts // 100) if up else parts // 100


def rolling_bounds(max_unavailable: int | str, max_surge: int | str, replicas: int) -> Bounds:
    """The bounds as counts: surge rounds up, unavailable down. If both are zero, one member may be missing, because no rollout could proceed."""
    surge = count_of(max_surge, replicas, up=True)
    unavailable = count_of(max_unavailable, replicas, up=False)
    if not surge and not unavailable:
        unavailable = 1
    return Bounds(min(unavailable, replicas), surge)


class UpdateStrategyType(StrEnum):
    RECREATE = "Recreate"
    ON_REPLENISH = "OnReplenish"
    ROLLING_UPDATE = "RollingUpdate"


class TemplateRef(Model, frozen=True):
    name: Annotated[str, doc("Name of a SandboxTemplate in the same namespace.")]


class RollingUpdate(Model, frozen=True):
    max_unavailable: Annotated[
        int | str,
        doc(
            "How many members, or what part of them, may be missing during a rollout.",
            default=DEFAULT_ROLLING,
            minimum=0,
            pattern=PERCENT,
        ),
    ] = DEFAULT_ROLLING
    max_surge: Annotated[
        int | str,
        doc(
            "How many members, or what part of them, may exist beyond replicas.",
            default=DEFAULT_ROLLING,
            minimum=0,
            pattern=PERCENT,
        ),
    ] = DEFAULT_ROLLING


class UpdateStrategy(Model, frozen=True):
    type: Annotated[
        str,
        doc(
            "What happens to unclaimed members when the template changes. OnReplenish: they stay until claimed; Recreate: all "
            "are replaced at once; RollingUpdate: they are replaced within the bounds of rollingUpdate.",
            enum=one_of(UpdateStrategyType),
            default="OnReplenish",
        ),
    ] = UpdateStrategyType.ON_REPLENISH.value
    rolling_update: Annotated[RollingUpdate | None, doc("Bounds of a rollout; read by RollingUpdate only.")] = None


class SandboxWarmPoolSpec(Model, frozen=True):
    sandbox_template_ref: Annotated[TemplateRef, doc("The template of the members.")]
    replicas: Annotated[
        int,
        doc("How many unclaimed sandboxes to keep.", format="int32", minimum=0, default=DEFAULT_REPLICAS),
    ] = DEFAULT_REPLICAS
    update_strategy: Annotated[UpdateStrategy | None, doc("How members follow the template.")] = None

    @property
    def strategy(self) -> UpdateStrategyType:
        """Unset, empty and unknown all mean OnReplenish."""
        try:
            return UpdateStrategyType(self.update_strategy.type if self.update_strategy else "")
        except ValueError:
            return UpdateStrategyType.ON_REPLENISH


class SandboxWarmPoolStatus(Model, frozen=True):
    replicas: Annotated[int, doc("Members that exist and are not leaving.", format="int32")] = 0
    ready_replicas: Annotated[int, doc("Members that can be claimed at once.", format="int32")] = 0
    updated_replicas: Annotated[int, doc("Members made from the template as it is now.", format="int32")] = 0
    updated_ready_replicas: Annotated[
        int, doc("Ready members made from the template as it is now.", format="int32")
    ] = 0
    selector: Annotated[str, doc("Label selector that finds the members.")] = ""
    observed_generation: Annotated[
        int, doc("The metadata.generation that this was computed from.", format="int64", minimum=0)
    ] = 0
    conditions: Annotated[
        tuple[Condition, ...],
        doc(
            "What is true of the pool: Ready, Progressing.",
            x_kubernetes_list_type="map",
            x_kubernetes_list_map_keys=["type"],
        ),
    ] = ()


class SandboxWarmPool(Model, frozen=True):
    """Keeps a number of sandboxes of one template running and unclaimed, so that a claim need not wait for one."""

    api_version: ClassVar[str] = f"{GROUP}/{VERSION}"
    kind: ClassVar[str] = "SandboxWarmPool"

    spec: Annotated[SandboxWarmPoolSpec, doc("How many, and of what.")]
    metadata: Metadata = Metadata()
    status: Annotated[SandboxWarmPoolStatus, doc("How many there are.")] = SandboxWarmPoolStatus()

    @property
    def template_key(self) -> Key:
        """The key of the template that the pool refers to, whether it exists or not."""
        return Key(self.metadata.namespace, self.spec.sandbox_template_ref.name)
