"""The priority policy: which work is urgent, and what that means wherever work has to wait.

There are four priorities. In the words of API priority and fairness each is a priority level, a namespace is a flow, and a write in flight
takes a seat. Two mechanisms apply the policy:

| Priority   | Work queue (loop/queue.py) | Gate of writes (kube/priority_gate.py)               | Weight |
|------------|----------------------------|------------------------------------------------------|--------|
| URGENT     | goes first                 | goes first: a user waits for it                      | 3      |
| BACKGROUND | waits for urgent keys      | waits for urgent writes: makes members of pools      | 3      |
| CLEANUP    | not used                   | waits for urgent writes: removes what nobody needs   | 1      |
| STATUS     | not used                   | waits for urgent writes: marks, counts, Events       | 1      |

Nothing starves. A background key waits while urgent keys are waiting or at work, in its own queue or in another one that shares the same
`UrgentWork`, but at most PATIENCE seconds; then it gets every other turn. A write that is not urgent waits at most GRACE seconds while urgent
writes are in flight and PATIENCE seconds while some wait; then all priorities take turns by weight. Without urgent work there is no wait.
Background work does not wait at all while claims wait for members of a pool: it makes these members (`expedite_background_while`).

A reconcile runs with the priority of its key, and its writes inherit it through the context; `priority_of_write` refines it by verb and
resource. Writes of controllers that share a process with the server pass the same gate (kube/interceptors.py). That server itself
(controlplane/apiserver/connection.py) does not know the priorities of its clients: it begins REQUESTS_PER_TURN requests in one turn of the event
loop, one tenant after the other, so that commits and watch events of earlier requests are not delayed.
Within one priority it is first come, first served, for each flow in turn; a write that completes something goes before those that begin
something (`expedited`): else, in a burst, everything would be completed last.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar, Token
from enum import IntEnum
from typing import Any, Final

from sandpool.model.kinds import POOLS, SANDBOXES
from sandpool.model.resource import Resource


class Priority(IntEnum):
    """What work is for. A lower number goes first."""

    URGENT = 0  # a user waits for it, usually with a claim
    BACKGROUND = 1  # makes members of pools, and everything else that nobody waits for yet
    CLEANUP = 2  # removes what nobody needs
    STATUS = 3  # reports state: marks, counts, Events


WEIGHTS: Final = {Priority.URGENT: 3, Priority.BACKGROUND: 3, Priority.CLEANUP: 1, Priority.STATUS: 1}
"""Turns when all priorities have waited long enough. About what a claim costs in each, so that none falls behind in the long run."""
PATIENCE: Final = 2.0
"""Seconds that work which is not urgent waits at most while urgent work waits."""
GRACE: Final = 0.5
"""Seconds that a write which is not urgent waits at most while urgent writes are only in flight."""
REQUESTS_PER_TURN: Final = 16
"""Requests that the API server in this process begins in one turn of the event loop, at most."""
STATUS_BATCH: Final = 16
"""Status writes that are sent together when no urgent work is left: enough to share a commit, few enough to end soon when urgent work comes."""
LABELS: Final = {
    Priority.URGENT: "claims",
    Priority.BACKGROUND: "refill",
    Priority.CLEANUP: "cleanup",
    Priority.STATUS: "status",
}
"""Values of the label `lane` of the metrics."""

_PRIORITY: ContextVar[Priority] = ContextVar("sandpool_priority", default=Priority.URGENT)
_EXPEDITED: ContextVar[bool] = ContextVar("sandpool_expedited", default=False)

current_priority: Callable[[], Priority] = _PRIORITY.get
"""The priority of requests that are made here."""
set_priority: Callable[[Priority], object] = _PRIORITY.set
"""As `with_priority`, until it is called again: for a worker that does one thing after the other, and so never has to reset it."""
is_expedited: Callable[[], bool] = _EXPEDITED.get


class with_priority:
    """Requests made inside, also by tasks started there, have this priority: `with with_priority(Priority.STATUS): ...`"""

    __slots__ = ("_priority", "_token")

    def __init__(self, priority: Priority) -> None:
        self._priority = priority

    def __enter__(self) -> None:
        self._token: Token[Priority] = _PRIORITY.set(self._priority)

    def __exit__(self, *_: object) -> None:
        _PRIORITY.reset(self._token)


class expedited:
    """Requests made inside go before others of their priority, because they complete something: `with expedited(): ...`"""

    __slots__ = ("_token",)

    def __enter__(self) -> None:
        self._token: Token[bool] = _EXPEDITED.set(True)

    def __exit__(self, *_: object) -> None:
        _EXPEDITED.reset(self._token)


def priority_of_write(priority: Priority, verb: str, resource: Resource[Any]) -> Priority:
    """The priority of a controller's write, from that of its reconcile. A delete cleans up. Of background work only the writes that bring a
    member closer to Ready stay background; marks and annotations that follow are status. A pool's own status is background too: there is at
    most one such write a second, and until it is done the pool makes no more members."""
    if verb == "delete":
        return Priority.CLEANUP
    if priority is Priority.BACKGROUND and verb != "create" and resource not in (SANDBOXES, POOLS):
        return Priority.STATUS
    return priority


class UrgentWork:
    """Counts the urgent keys that wait for a worker or are with one, over several queues that share it.

    One event loop serves all controllers, so a key of one queue takes time from the keys of all others. The gate before the server holds
    background writes back, but by then they have been decided, which is most of the work. So background keys are not even handed out.
    """

    __slots__ = ("_count", "_on_idle")

    def __init__(self) -> None:
        self._count = 0
        self._on_idle: list[Callable[[], object]] = []

    @property
    def idle(self) -> bool:
        return not self._count

    def on_idle(self, callback: Callable[[], object]) -> None:
        """Call back whenever the last urgent key is done."""
        self._on_idle.append(callback)

    def began(self) -> None:
        self._count += 1

    def ended(self) -> None:
        self._count -= 1
        if not self._count:
            for callback in self._on_idle:
                callback()
