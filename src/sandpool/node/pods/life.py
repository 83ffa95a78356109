"""What a pod needs next. Pure: no I/O, no clock, no logging.

A pod is made (sandbox, volumes, address), its init containers run one after the other, then the others start; when it is stopped it is
asked, waited for, and taken away. One that is over before that keeps its logs and nothing else. Every step may be repeated; one
that failed is decided again after its delay.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from math import inf

from sandpool.node.backend import Waiting
from sandpool.node.pods.options import PodsOptions


class Stage(Enum):
    NEW = "new"
    RUNS = "runs"
    ENDED = "ended"


@dataclass(frozen=True, slots=True)
class Trouble:
    """Something could not be had. It is tried again at `retry_at`; times are monotonic."""

    reason: str
    message: str
    since: float
    retry_at: float
    count: int = 1


@dataclass(frozen=True, slots=True)
class Part:
    """A container."""

    name: str
    stage: Stage = Stage.NEW
    code: int = 0
    again: bool = False  # it is to be started once more
    sidecar: bool = False  # an init container that goes on while the others run
    trouble: Trouble | None = None

    @property
    def pending(self) -> bool:
        return self.stage is Stage.NEW or (self.stage is Stage.ENDED and self.again)


@dataclass(frozen=True, slots=True)
class PodView:
    init: tuple[Part, ...] = ()
    containers: tuple[Part, ...] = ()
    made: bool = False
    initialized: bool = False  # the init containers are through, and not asked again
    over: bool = False  # it has ended for good: nothing of it is started any more
    reclaimed: bool = False  # nothing is left of it but its logs
    stopping: bool = False
    asked: bool = False  # the containers were told to end
    paused: bool = False
    ends_at: float = inf  # when the grace is over
    trouble: Trouble | None = None


@dataclass(frozen=True, slots=True)
class Make:
    """Volumes, sandbox, address."""


@dataclass(frozen=True, slots=True)
class Begin:
    container: str


@dataclass(frozen=True, slots=True)
class Ask:
    """Tells all that run to end."""


@dataclass(frozen=True, slots=True)
class Reclaim:
    """Takes back everything of a pod that is over, but its logs. No quota counts such a pod, so it may not hold anything that one would
    count."""


@dataclass(frozen=True, slots=True)
class TakeAway:
    """Ends what still runs and removes everything."""


@dataclass(frozen=True, slots=True)
class Rest:
    """Nothing to do until something changes, or until then."""

    until: float = inf


Step = Make | Begin | Ask | Reclaim | TakeAway | Rest


def next_step(view: PodView, now: float) -> Step:
    if view.stopping:
        return _end(view, now)
    if view.over:
        return Rest() if view.reclaimed else _after(view.trouble, now) or Reclaim()
    if not view.made:
        return _after(view.trouble, now) or Make()
    if view.paused:
        return Rest()  # what is started in something frozen would freeze, too
    for part in view.init:
        if not view.initialized and not _passed(part):
            return _begin((part,), now)
    return _begin((*(part for part in view.init if part.sidecar), *view.containers), now)


def _end(view: PodView, now: float) -> Step:
    runs = any(part.stage is Stage.RUNS for part in (*view.init, *view.containers))
    if runs and now < view.ends_at:
        return Rest(view.ends_at) if view.asked else Ask()
    return _after(view.trouble, now) or TakeAway()


def _passed(part: Part) -> bool:
    """Whether the containers after this init container may start."""
    if part.sidecar:
        return part.stage is not Stage.NEW
    return part.stage is Stage.ENDED and part.code == 0 and not part.again


def _begin(parts: tuple[Part, ...], now: float) -> Step:
    """The first one that is due; one that cannot be started does not keep back those after it."""
    rests = []
    for part in parts:
        if part.pending:
            rest = _after(part.trouble, now)
            if rest is None:
                return Begin(part.name)
            rests.append(rest.until)
    return Rest(min(rests, default=inf))


def _after(trouble: Trouble | None, now: float) -> Rest | None:
    if trouble is None or trouble.retry_at <= now:
        return None
    words_change = _words_change(trouble)
    return Rest(words_change if words_change > now else trouble.retry_at)


# Trouble

_PULLS = ("ErrImagePull", "ImagePullBackOff")
_SHOWN = 2.0  # seconds for which a failure itself is shown, before the waiting for the next attempt is


def troubled(
    before: Trouble | None, reason: str, message: str, now: float, options: PodsOptions = PodsOptions()
) -> Trouble:
    """One more failure: the delay doubles."""
    count = 1 if before is None else before.count + 1
    first = options.first_pull_retry if reason in _PULLS else options.first_retry
    delay = min(options.longest_retry, first * 2.0 ** min(count - 1, 32))
    return Trouble(reason, message, now, now + delay, count)


def waiting(trouble: Trouble, image: str, now: float) -> Waiting:
    """How a container that is in trouble looks."""
    if trouble.reason in _PULLS and _words_change(trouble) <= now:
        return Waiting("ImagePullBackOff", f'Back-off pulling image "{image}": {trouble.message}')
    return Waiting(trouble.reason, trouble.message)


def _words_change(trouble: Trouble) -> float:
    return min(trouble.retry_at, trouble.since + _SHOWN) if trouble.reason in _PULLS else trouble.retry_at
