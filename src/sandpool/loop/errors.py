"""Errors that a reconcile may raise besides those of an API server. loop/controller.py decides what each one leads to."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from sandpool.base.errors import SandpoolError
from sandpool.model.metadata import Revision


class Reachable(Protocol):
    """Something that catches up with revisions: a cache."""

    def when_reached(self, revision: Revision, callback: Callable[[], object]) -> None: ...


class Unobserved(SandpoolError):
    """Not a failure: `cache` does not show `revision` yet, and what depends on it must wait until it does."""

    def __init__(self, key: object, revision: Revision, cache: Reachable) -> None:
        super().__init__(f"{key}: the cache has not reached revision {revision} yet")
        self.key = key
        self.revision = revision
        self.cache = cache


class Terminal(SandpoolError):
    """A retry cannot help until something changes. The reason and the message become a condition."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(f"{reason}: {message}")
        self.reason = reason
        self.message = message


class NotSynced(SandpoolError):
    """A cache was not filled in time; the message names it and the last error."""


class LeadershipLost(SandpoolError):
    """The lease could not be renewed in time, or another process holds it. Nothing may be written any more."""


class NoPlaceForLease(SandpoolError):
    """The namespace of the lease does not exist, so no process can lead."""
