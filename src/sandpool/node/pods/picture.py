"""How a pod looks: to those who ask, and to the decision. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from math import inf

from sandpool.node.backend import Running, RunningContainer, Waiting, Workload
from sandpool.node.pods.life import PodView, Trouble, waiting
from sandpool.node.pods.slot import Slot


@dataclass(slots=True)
class Facts:
    """What is known of a pod beside its containers. Times are monotonic."""

    made: bool = False
    initialized: bool = False
    trouble: Trouble | None = None
    ends_at: float = inf  # finite: it is stopping
    asked: bool = False
    paused: bool = False
    evicted: str = ""
    over: bool = False
    reclaimed: bool = False

    @property
    def stopping(self) -> bool:
        return self.ends_at < inf


def running(
    workload: Workload, slots: Iterable[Slot], facts: Facts, address: str, notes: tuple[str, ...], now: float
) -> Running:
    slots = tuple(slots)
    init = [slot.seen(now) for slot in slots if slot.init]
    containers = [slot.seen(now) for slot in slots if not slot.init]
    if facts.trouble is not None and not facts.made and not facts.stopping:
        first = init or containers
        first[:] = [_held_up(one, facts.trouble, now) for one in first]
    return Running(
        workload.uid,
        workload.key,
        address,
        tuple(init),
        tuple(containers),
        facts.stopping,
        facts.paused,
        notes,
        facts.evicted,
        facts.reclaimed,
    )


def _held_up(container: RunningContainer, trouble: Trouble, now: float) -> RunningContainer:
    """What the pod waits for, each of its first containers waits for."""
    return replace(container, state=waiting(trouble, "", now)) if isinstance(container.state, Waiting) else container


def view(slots: Iterable[Slot], facts: Facts) -> PodView:
    slots = tuple(slots)
    return PodView(
        tuple(slot.part for slot in slots if slot.init),
        tuple(slot.part for slot in slots if not slot.init),
        facts.made,
        facts.initialized,
        facts.over,
        facts.reclaimed,
        facts.stopping,
        facts.asked,
        facts.paused,
        facts.ends_at,
        facts.trouble,
    )
