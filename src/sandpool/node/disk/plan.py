"""Which pods to measure, to stop for a moment, or to evict. Pure: no I/O, no clock, no logging.

Measuring a pod is a walk through all its files, too slow to be done all the time; how much is free on the whole file system is one cheap
call. So a pod is measured only when so much has been taken from the file system since it was last measured that it could be past a
limit. It is frozen meanwhile: so it cannot write more by having many files, and cannot move files from directories that are not yet
counted to ones that are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sandpool.model.metadata import Uid
from sandpool.node.disk.space import Level

GIB = 1 << 30
TENTH = 10
GRAIN = 64 << 20  # a smaller decrease of free space is no reason to measure
OFTEN, SOMETIMES = 0.025, 0.1  # seconds between two checks of the file system
FAST = 256 << 20  # bytes a second
SOON = 0.5  # seconds in which a fast writer must not reach the reserve
OLD = 60.0  # seconds after which a measurement is outdated, if free space has shrunk since


@dataclass(frozen=True, slots=True)
class PodFacts:
    """What the decision needs to know of a pod."""

    uid: Uid
    slack: int | None  # bytes from what was last measured to the nearest limit; None: it has no limit
    allowance: int = GIB  # by how much it may be past that limit before it is stopped
    taken: int = 0  # decrease of free space since it was last measured, by any pod
    age: float = 0.0  # seconds since then
    cost: float = 0.0  # seconds that measuring it took
    used: int = 0  # ephemeral bytes; where inodes are short, inodes
    request: int = 0
    over: bool = False  # only its logs are left
    measuring: bool = False
    frozen: bool = False
    leaving: bool = False  # it was evicted
    going: bool = False  # evicted just now: its space is about to be freed
    unknown: bool = False  # never measured, and may have files of an earlier run
    fresh: bool = False  # measured since the pressure began, and free space has hardly shrunk since

    @property
    def excess(self) -> int:
        return self.used - self.request


@dataclass(frozen=True, slots=True)
class View:
    """What the decision needs to know of the disk and its pods."""

    level: Level
    free: int
    reserve: int
    rate: float = 0.0  # bytes per second by which free space shrinks
    pods: Sequence[PodFacts] = ()
    pruning: bool = False
    pruned: bool = False  # since the pressure began
    worth: int = 1  # a pod that uses less is not evicted


@dataclass(frozen=True, slots=True)
class Plan:
    """What to do now, and when to check again."""

    freeze: tuple[Uid, ...] = ()
    thaw: tuple[Uid, ...] = ()
    measure: tuple[Uid, ...] = ()
    evict: Uid | None = None  # because the node is low on storage
    prune: bool = False
    wait: float = SOMETIMES


def allowance(limit: int) -> int:
    """How far past a limit a pod may get: 10 % or 1 GiB, whichever is more."""
    return max(limit // TENTH, GIB)


def decide(view: View) -> Plan:
    low = view.level is not Level.OK
    racing = low and view.free - view.rate * SOON < view.reserve // 2
    busy = any(pod.measuring or pod.going for pod in view.pods)
    measure = [pod.uid for pod in view.pods if not pod.measuring and not pod.leaving and _due(pod, low)]
    victim = None if busy or measure or view.pruning else _largest(view)
    settling = busy or bool(measure) or victim is not None
    looked_at = {*measure, *(pod.uid for pod in view.pods if pod.measuring)}
    held = {pod.uid for pod in view.pods if not pod.leaving and ((racing and settling) or pod.uid in looked_at)}
    return Plan(
        freeze=tuple(pod.uid for pod in view.pods if pod.uid in held and not pod.frozen),
        thaw=tuple(pod.uid for pod in view.pods if pod.frozen and pod.uid not in held and not pod.leaving),
        measure=tuple(measure),
        evict=victim if view.pruned or not low else None,
        prune=low and not view.pruned and not view.pruning,
        wait=_wait(view, settling),
    )


def _due(pod: PodFacts, low: bool) -> bool:
    if pod.unknown or (low and not pod.fresh):
        return True
    if pod.slack is None or pod.taken <= 0:
        return False
    if pod.taken >= max(pod.slack, min(GRAIN, pod.allowance // 16)):
        return True
    return pod.age >= OLD + 20 * pod.cost


def _largest(view: View) -> Uid | None:
    """The pod to evict. Logs of finished pods go first: no quota counts them. Then the pod that is furthest above its request. Pods that
    use next to nothing stay, because evicting them would not help."""
    if view.level is Level.OK:
        return None
    found = [pod for pod in view.pods if pod.used >= max(view.worth, 1) and not pod.leaving]
    return max(found, key=lambda pod: (pod.over, pod.excess > 0, pod.excess, pod.uid)).uid if found else None


def _wait(view: View, settling: bool) -> float:
    if settling or view.rate >= FAST or view.level is not Level.OK or any(pod.frozen for pod in view.pods):
        return OFTEN
    return SOMETIMES
