"""One step of the world: a change, who made it, what they knew, and when. Invariants judge steps; a trace consists of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from sandpool.controlplane.store.log import MemoryLog, Unit
from sandpool.controlplane.store.record import Change
from sandpool.model.claim import SandboxClaim
from sandpool.model.core import Service
from sandpool.model.metadata import Key, Revision
from sandpool.model.pod import Pod
from sandpool.model.pool import SandboxWarmPool
from sandpool.model.resource import Resource
from sandpool.model.sandbox import Sandbox
from sandpool.model.template import SandboxTemplate
from sandpool.telemetry.log import bound_to

USER, KUBELET, COLLECTOR, NOBODY = "user", "kubelet", "collector", "nobody"


@dataclass(slots=True)
class Sight:
    """What a leader knew, from its own caches, when it sent a request; as far as invariants need it."""

    began: float | None = None  # when the first call of its reconcile left
    object: Any = None  # what it wrote to
    claim: SandboxClaim | None = None  # that its claim controller worked for
    box: Sandbox | None = None  # the sandbox that the claim written to shows
    pool: SandboxWarmPool | None = None  # of the sandbox or claim written to; see knowledge.py
    template: SandboxTemplate | None = None  # of that pool
    pod: Pod | None = None  # of the sandbox written to
    service: Service | None = None  # likewise
    left: int | None = None  # available members that this rollout leaves
    floor: int | None = None  # and how many must stay


@dataclass(slots=True)
class Author:
    """`name` is a leader's, or one of the words above. The other fields are known of controllers only."""

    name: str
    controller: str = ""
    rid: str = ""
    key: Key | None = None
    issued: float = 0.0  # when the request was made; it may take effect much later
    saw: Sight = field(default_factory=Sight)

    def __str__(self) -> str:
        return f"{self.name} {self.rid}" if self.rid else self.name


AUTHOR: ContextVar[Author | None] = ContextVar("sandpool_simulation_author", default=None)


def author() -> Author:
    return AUTHOR.get() or Author(NOBODY)


def of_leader(name: str, now: float) -> Author:
    """The reconcile that runs in this task."""
    controller, rid, key = bound_to("controller"), bound_to("rid"), bound_to("key")
    return Author(name, str(controller or ""), str(rid or ""), key if isinstance(key, Key) else None, now)


@contextmanager
def writing(who: Author) -> Iterator[None]:
    token = AUTHOR.set(who)
    try:
        yield
    finally:
        AUTHOR.reset(token)


def writes_as(name: str) -> None:
    """From here on this task, and those that it starts, write under that name."""
    AUTHOR.set(Author(name))


@dataclass(slots=True)
class Step:
    """`old` and `new` as typed objects; `new` is None when the object is gone, `old` when it is new."""

    at: float
    author: Author
    resource: Resource[Any]
    key: str
    revision: Revision
    old: Any
    new: Any

    @property
    def object(self) -> Any:
        """The newest state of the object."""
        return self.new if self.new is not None else self.old


class WitnessedLog(MemoryLog):
    """A log in memory that calls `witness` with each change when it is decided, and its author."""

    def __init__(self, witness: Callable[[Change, Author], object], window: int = 20_000) -> None:
        super().__init__(window)
        self._witness = witness
        self.added_by: Author | None = None  # whose inline hook added to the commit of the next new object

    def append(self, unit: Unit) -> None:
        super().append(unit)
        who, added_by = author(), self.added_by
        self.added_by = None
        self._witness(unit[0].change, who)
        for entry in unit[1:]:
            self._witness(entry.change, added_by or who)
