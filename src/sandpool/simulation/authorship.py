"""Who writes: every change of the world is put down to somebody, so that an invariant can ask who did it and why."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from sandpool.model.claim import SandboxClaim
from sandpool.model.core import Service
from sandpool.model.metadata import Key
from sandpool.model.pod import Pod
from sandpool.model.pool import SandboxWarmPool
from sandpool.model.sandbox import Sandbox
from sandpool.model.template import SandboxTemplate
from sandpool.telemetry.log import bound_to

USER, KUBELET, COLLECTOR, NOBODY = "user", "kubelet", "collector", "nobody"


@dataclass(slots=True)
class Sight:
    """What a leader knew when a request of it left, from its own caches; as far as an invariant asks."""

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
    """`name` is a leader's, or one of the words above. The rest is known of controllers only."""

    name: str
    controller: str = ""
    rid: str = ""
    key: Key | None = None
    issued: float = 0.0  # when the request was made; it may take effect much later
    saw: Sight = field(default_factory=Sight)

    def __str__(self) -> str:
        return f"{self.name} {self.rid}" if self.rid else self.name


_AUTHOR: ContextVar[Author | None] = ContextVar("sandpool_simulation_author", default=None)


def author() -> Author:
    return _AUTHOR.get() or Author(NOBODY)


def of_leader(name: str, now: float) -> Author:
    """The reconcile that runs in this task."""
    controller, rid, key = bound_to("controller"), bound_to("rid"), bound_to("key")
    return Author(name, str(controller or ""), str(rid or ""), key if isinstance(key, Key) else None, now)


@contextmanager
def writing(who: Author) -> Iterator[None]:
    token = _AUTHOR.set(who)
    try:
        yield
    finally:
        _AUTHOR.reset(token)


def writes_as(name: str) -> None:
    """From here on this task, and those that it starts, write under that name."""
    _AUTHOR.set(Author(name))
