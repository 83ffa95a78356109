"""Deliberate bugs: each disables one safeguard while it is in force. A simulation that does not detect them proves nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any

from sandpool.controllers.assigner.assigner import Assigner
from sandpool.controllers.assigner.facts import Claimant
from sandpool.controllers.assigner.staleness import Staleness
from sandpool.controllers.assigner.wait_queue import WaitQueue
from sandpool.controllers.claim import handover, plan, settle
from sandpool.controllers.claim.annotations import FirstReady
from sandpool.controllers.claim.apply import Applier
from sandpool.controllers.claim.controller import ClaimController
from sandpool.controllers.claim.triggers import Triggers
from sandpool.controllers.pool import plan as pool_plan
from sandpool.controllers.pool import removal
from sandpool.controllers.pool.view import PoolView
from sandpool.controllers.sandbox import release
from sandpool.controllers.sandbox import triggers as sandbox_triggers
from sandpool.loop.cache import Cache
from sandpool.loop.queue import Queue
from sandpool.model.patches import Patch
from sandpool.simulation import users
from sandpool.simulation.faults import Fault

Change = tuple[Any, str, Callable[[Any], Any]]
"""The owner of a safeguard, its attribute there, and a function from the original to its replacement."""


def _without_tests(path: str) -> Callable[[Any], Any]:
    """The same patch without the tests whose path ends like that."""

    def mutate(original: Callable[..., Patch]) -> Callable[..., Patch]:
        def build(*args: Any, **options: Any) -> Patch:
            patch = original(*args, **options)
            kept = [step for step in patch.body if not (step["op"] == "test" and step["path"].endswith(path))]
            return Patch(patch.type, kept)

        return build

    return mutate


def _without_owner_test(original: Callable[..., Patch]) -> Callable[..., Patch]:
    def build(*args: Any, **options: Any) -> Patch:
        patch = original(*args, **options)
        owned = [step for step in patch.body if step["op"] == "test" and "ownerReferences" in step["path"]]
        return Patch(patch.type, [step for step in patch.body if step not in owned])

    return build


def _without_precondition(original: Callable[..., Patch]) -> Callable[..., Patch]:
    """The binding, whatever is bound already. It still says which claim it means."""

    def build(*args: Any, **options: Any) -> Patch:
        patch = original(*args, **options)
        tests = [step for step in patch.body if step["op"] == "test" and step["path"] != "/metadata/uid"]
        return Patch(patch.type, [step for step in patch.body if step not in tests])

    return build


def _silent(original: Callable[..., None]) -> Callable[..., None]:
    """Our own writes enter the cache, but no subscriber is called."""

    def learn(cache: Any, obj: Any) -> None:
        subscribers, cache._subscribers = cache._subscribers, []
        try:
            original(cache, obj)
        finally:
            cache._subscribers = subscribers

    return learn


def _without_look(original: Callable[..., Any]) -> Callable[..., Any]:
    """An unknown outcome is treated as a failure."""

    def after(outcome: Any, name: str) -> Any:
        step = original(outcome, name)
        return settle.Next(f"sandbox {name}: no answer") if isinstance(step, settle.Look) else step

    return after


def _without_room(original: Callable[..., int]) -> Callable[..., int]:
    """A rollout creates all new members at once."""

    def missing(view: PoolView) -> int:
        fresh = view.population - len(view.roster) + view.roster.fresh
        return max(0, view.replicas - fresh)

    return missing


def _youngest(_: Callable[..., Any]) -> Callable[..., Any]:
    def first(queue: WaitQueue) -> Claimant | None:
        return queue._entries[queue._all[-1]].claimant if queue._all else None

    return first


def _for_ever(original: Callable[..., Any]) -> Callable[..., Any]:
    """A waiting claim is not reconciled again by itself."""

    async def rest(*args: Any) -> Any:
        return replace(await original(*args), again_at=None)

    return rest


async def _nothing(*_: object) -> None:
    """Replaces a coroutine function: does nothing."""


MUTATIONS: dict[str, tuple[Change, ...]] = {
    "uid-test": ((handover, "transfer", _without_tests("/metadata/uid")),),
    "owner-test": ((handover, "transfer", _without_owner_test),),
    "binding-precondition": ((handover, "binding", _without_precondition),),
    "tombstone": ((Cache, "mark_deleting", lambda _: lambda cache, key, uid: False),),
    "own-writes": ((Cache, "upsert", _silent),),
    "look-after-timeout": ((settle, "after_transfer", _without_look),),
    "surge-limit": ((pool_plan, "missing", _without_room),),
    "staleness": ((Staleness, "stale", lambda _: lambda judge, sandbox: False),),
    "release-preconditions": (
        (release, "delete", lambda original: lambda *args, pinned: original(*args)),
        (sandbox_triggers, "releases", lambda _: lambda claim: True),
    ),
    "delete-preconditions": ((removal, "Preconditions", lambda original: lambda *_: original()),),
    "lost-creates": ((PoolView, "population", lambda _: property(lambda view: len(view.roster))),),
    "open-transfers": (
        (handover.Handover, "settle_open", lambda _: _nothing),
        # It shows only if the member is no longer wanted when its transfer turns out to have taken effect.
        (users, "FAILED", lambda failed: (*failed, Fault.LOST, Fault.TIMEOUT_AFTER, Fault.INTERNAL_AFTER)),
    ),
    "annotations-first": ((handover.Handover, "name", lambda _: _nothing),),
    "ready-again": ((FirstReady, "follows", lambda _: lambda *_: None),),
    "inline-events": ((Triggers, "_bound_inline", lambda _: lambda *_: None),),
    "oldest-first": ((WaitQueue, "first", _youngest),),
    "cold-is-not-final": ((plan, "_may_yet_be_served", lambda _: lambda *_: False),),
    "nobody-waits-in-vain": ((WaitQueue, "first", lambda _: lambda queue: None),),
    "refill-share": ((Queue, "expedite_background_while", lambda _: lambda *_: None),),
    "end-of-waits": (
        (Applier, "_rest", _for_ever),
        (ClaimController, "wake", lambda _: lambda *_: None),
    ),
    "second-thoughts": ((Assigner, "offered", lambda _: lambda assigner, claim: True),),
}


@contextmanager
def mutated(name: str) -> Iterator[None]:
    """Within, the safeguard of that name is missing; with an empty name, none is."""
    if name and name not in MUTATIONS:
        raise ValueError(f"mutation {name!r} is unknown; use one of: {', '.join(MUTATIONS)}")
    with ExitStack() as restored:
        for place, attribute, mutate in MUTATIONS.get(name, ()):
            original = getattr(place, attribute)
            setattr(place, attribute, mutate(original))
            restored.callback(setattr, place, attribute, original)
        yield
