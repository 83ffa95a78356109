"""Single cases of the cache; tests/machines/test_cache_machine.py searches for the rest."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from datetime import UTC, datetime

import msgspec

from sandpool.kube.api import Event, EventType
from sandpool.loop.cache import Cache
from sandpool.loop.index import controller_of, namespace_of
from sandpool.model.metadata import Key, Metadata, Object, OwnerReference, PartialObject, Revision, Uid
from sandpool.model.resource import Resource

THINGS: Resource[PartialObject] = Resource("test", "v1", "things", "Thing", PartialObject)
A = Key("ns", "a")


def colour_of(obj: Object) -> tuple[str, ...]:
    value = obj.metadata.labels.get("colour")
    return () if value is None else (value,)


def owners_of(obj: Object) -> tuple[Uid, ...]:
    return tuple(owner.uid for owner in obj.metadata.owner_references)


def thing(
    revision: int,
    name: str = "a",
    uid: str = "",
    colour: str = "red",
    leaving: bool = False,
    owners: Iterable[str] = (),
    created: int = 0,
) -> PartialObject:
    return PartialObject(
        metadata=Metadata(
            namespace="ns",
            name=name,
            uid=Uid(uid or name),
            resource_version=str(revision),
            labels={"colour": colour},
            creation_timestamp=datetime(2026, 1, 1, 0, 0, created, tzinfo=UTC),
            deletion_timestamp=datetime(2026, 1, 1, tzinfo=UTC) if leaving else None,
            owner_references=tuple(
                OwnerReference(api_version="v1", kind="O", name=o, uid=Uid(o), controller=n == 0 or None)
                for n, o in enumerate(owners)
            ),
        )
    )


def event(obj: PartialObject, type_: EventType = EventType.MODIFIED) -> Event[PartialObject]:
    return Event(type_, obj, obj.metadata.revision)


def recorded(cache: Cache[PartialObject]) -> list[tuple[int | None, int | None]]:
    """The steps that a subscriber sees, as pairs of revisions."""
    steps: list[tuple[int | None, int | None]] = []
    cache.subscribe(lambda old, new: steps.append((old and old.metadata.revision, new and new.metadata.revision)))  # type: ignore[arg-type]
    return steps


def test_an_answer_is_seen_at_once_and_its_event_changes_nothing() -> None:
    cache = Cache(THINGS)
    cache.replace([thing(1)], Revision(1))
    steps = recorded(cache)
    answer = thing(2, colour="blue")
    cache.upsert(answer)
    assert cache.get(A) is answer
    assert cache.revision == 1
    cache.apply(event(thing(2, colour="blue")))
    assert cache.get(A) is answer, "the object that came first stays: it is the same state"
    assert cache.revision == 2
    assert steps == [(None, 1), (1, 2)]


def test_an_answer_that_comes_after_its_event_changes_nothing() -> None:
    cache = Cache(THINGS)
    cache.replace([], Revision(1))
    cache.apply(event(thing(2), EventType.ADDED))
    cache.apply(event(thing(3), EventType.DELETED))
    cache.upsert(thing(2))
    assert cache.get(A) is None


def test_an_event_said_twice_does_not_bring_back_what_is_gone() -> None:
    cache = Cache(THINGS)
    cache.replace([], Revision(1))
    for said in (
        event(thing(2), EventType.ADDED),
        event(thing(3), EventType.DELETED),
        event(thing(2), EventType.ADDED),
    ):
        cache.apply(said)
    assert cache.get(A) is None
    assert cache.revision == 3


def test_a_relist_keeps_what_is_newer_than_it() -> None:
    cache = Cache(THINGS)
    cache.replace([thing(1), thing(2, "b")], Revision(2))
    cache.upsert(thing(7))
    cache.upsert(thing(8, "c"))
    cache.replace([thing(4)], Revision(5))
    assert {obj.metadata.name: obj.metadata.revision for obj in cache} == {"a": 7, "c": 8}


def test_a_list_tells_of_what_is_new_in_the_order_in_which_it_was_made() -> None:
    """As the watch would have, had it not missed it."""
    cache = Cache(THINGS)
    steps = recorded(cache)
    cache.replace([thing(5, "a", created=3), thing(9, "b", created=1), thing(3, "c", created=3)], Revision(9))
    assert steps == [(None, 9), (None, 3), (None, 5)]


def test_a_failed_delete_is_rolled_back() -> None:
    cache = Cache(THINGS)
    obj = thing(1)
    cache.replace([obj], Revision(1))
    steps = recorded(cache)
    assert cache.mark_deleting(A, obj.metadata.uid)
    assert cache.leaving(obj)
    cache.unmark_deleting(obj.metadata.uid)
    assert not cache.leaving(obj)
    assert steps == [(None, 1)]


def test_a_delete_is_seen_at_once_and_older_events_do_not_bring_the_object_back() -> None:
    cache = Cache(THINGS)
    cache.replace([thing(1)], Revision(1))
    steps = recorded(cache)
    cache.mark_deleting(A, Uid("a"))
    cache.gone(A, Uid("a"))
    assert cache.get(A) is None
    cache.apply(event(thing(2)))  # somebody's update, before our delete
    assert cache.get(A) is None
    cache.apply(event(thing(3), EventType.DELETED))
    assert steps == [(None, 1), (1, None)]
    assert not cache.tombstones


def test_an_object_created_anew_under_its_name_is_another_object() -> None:
    cache = Cache(THINGS)
    cache.replace([thing(1, uid="old")], Revision(1))
    cache.mark_deleting(A, Uid("old"))
    cache.gone(A, Uid("old"))
    cache.upsert(thing(5, uid="new"))
    cache.apply(event(thing(3, uid="old")))
    cache.apply(event(thing(4, uid="old"), EventType.DELETED))
    shown = cache.get(A)
    assert shown is not None
    assert shown.metadata.uid == "new"
    assert not cache.leaving(shown)


def test_taking_over_a_name_tells_of_the_end_first() -> None:
    cache = Cache(THINGS)
    cache.replace([thing(1, uid="old")], Revision(1))
    steps = recorded(cache)
    cache.upsert(thing(5, uid="new"))
    assert steps == [(None, 1), (1, None), (None, 5)]


def test_doom_of_an_unknown_uid_is_refused() -> None:
    cache = Cache(THINGS)
    cache.replace([thing(1, uid="old")], Revision(1))
    assert not cache.mark_deleting(A, Uid("other"))
    assert not cache.mark_deleting(Key("ns", "b"), Uid("old"))


def test_a_list_older_than_the_watch_means_that_the_server_went_back() -> None:
    cache = Cache(THINGS)
    cache.replace([thing(50), thing(60, "b"), thing(10, "c"), thing(70, "d", uid="d2")], Revision(90))
    steps = recorded(cache)
    restored = [thing(20), thing(10, "c"), thing(30, "d", uid="d1")]
    called: list[str] = []
    cache.when_reached(Revision(95), lambda: called.append("woken"))
    cache.replace(restored, Revision(40))
    assert {obj.metadata.name: obj.metadata.revision for obj in cache} == {"a": 20, "c": 10, "d": 30}
    assert cache.revision == 40
    assert steps[4:] == [(50, 20), (60, None), (70, None), (None, 30)]
    assert called == ["woken"], "a revision that may never come is not waited for"


def test_a_partial_cache_lets_go_of_what_leaves_its_scope() -> None:
    cache = Cache(THINGS, holds=lambda obj: obj.metadata.labels["colour"] == "red")
    cache.replace([thing(1)], Revision(1))
    steps = recorded(cache)
    cache.upsert(thing(2, colour="blue"))
    assert cache.get(A) is None
    cache.upsert(thing(4))
    cache.apply(event(thing(2, colour="blue"), EventType.DELETED))
    cache.apply(event(thing(4), EventType.ADDED))
    assert steps == [(None, 1), (1, None), (None, 4)]


def test_indexes_follow_every_change_and_cost_no_copies() -> None:
    cache = Cache(THINGS)
    early = cache.index(colour_of)
    cache.replace([thing(1, owners=("p", "q")), thing(2, "b", colour="blue", owners=("p",))], Revision(2))
    late, controllers, owners = cache.index(colour_of), cache.index(controller_of), cache.index(owners_of)
    for index in (early, late):
        assert [obj.metadata.name for obj in index.get("red")] == ["a"]
    cache.apply(event(thing(3, colour="blue", owners=("q",))))
    for index in (early, late):
        assert index.count("red") == 0
        assert set(index.values()) == {"blue"}
        assert {obj.metadata.name for obj in index.get("blue")} == {"a", "b"}
    assert [obj.metadata.name for obj in controllers.get(Uid("q"))] == ["a"]
    assert [obj.metadata.name for obj in owners.get(Uid("p"))] == ["b"]
    assert cache.get(A) in controllers.get(Uid("q"))
    assert cache.index(namespace_of).count("ns") == len(cache) == 2
    assert next(iter(controllers.get(Uid("q")))) is cache.get(A)


def test_who_asks_for_the_same_index_shares_it() -> None:
    cache = Cache(THINGS)
    assert cache.index(controller_of) is cache.index(controller_of)
    assert cache.index(controller_of) is not cache.index(owners_of)


def test_an_index_holds_one_object_as_itself_and_several_by_key() -> None:
    cache = Cache(THINGS)
    colours = cache.index(colour_of)
    cache.replace([thing(1)], Revision(1))
    assert list(colours.get("red")) == [cache.get(A)]
    cache.apply(event(thing(2)))
    assert list(colours.get("red")) == [cache.get(A)], "the newest state of it"
    cache.apply(event(thing(3, "b"), EventType.ADDED))
    assert [obj.metadata.name for obj in colours.get("red")] == ["a", "b"]
    assert colours.count("red") == 2
    cache.apply(event(thing(4), EventType.DELETED))
    assert [obj.metadata.name for obj in colours.get("red")] == ["b"]
    cache.apply(event(thing(5, "b", colour="blue")))
    assert (colours.count("red"), colours.count("blue")) == (0, 1)
    assert set(colours.values()) == {"blue"}
    cache.apply(event(thing(6, "b", colour="blue"), EventType.DELETED))
    assert not colours.values()


async def test_reached_waits_for_the_watch_not_for_answers() -> None:
    cache = Cache(THINGS)
    cache.replace([], Revision(1))
    await cache.reached(Revision(1))
    waiting = asyncio.create_task(cache.reached(Revision(5)))
    cache.upsert(thing(5))
    cache.apply(event(thing(4, "b"), EventType.ADDED))
    await asyncio.sleep(0)
    assert not waiting.done()
    cache.apply(Event(EventType.BOOKMARK, None, Revision(6)))
    await waiting


def test_a_late_subscriber_is_told_what_is_here() -> None:
    cache = Cache(THINGS)
    cache.replace([thing(1), thing(2, "b")], Revision(2))
    assert recorded(cache) == [(None, 1), (None, 2)]


def test_a_server_that_went_back_may_use_a_revision_again_for_something_else() -> None:
    cache = Cache(THINGS)
    cache.replace([thing(50, colour="red")], Revision(90))
    cache.replace([thing(50, colour="blue")], Revision(60))
    shown = cache.get(A)
    assert shown is not None
    assert shown.metadata.labels["colour"] == "blue"


def test_events_that_come_together_are_steps_of_their_own_and_one_advance() -> None:
    cache = Cache(THINGS)
    cache.replace([thing(1)], Revision(1))
    steps, reached = recorded(cache), list[int]()
    for revision in (2, 4):
        cache.when_reached(Revision(revision), lambda: reached.append(cache.revision))
    cache.apply_all([event(thing(2)), event(thing(3, "b"), EventType.ADDED), event(thing(4), EventType.DELETED)])
    assert steps == [(None, 1), (1, 2), (None, 3), (2, None)]
    assert reached == [4, 4]
    cache.apply_all([event(thing(2)), event(thing(5, "b"))])
    assert steps[4:] == [(3, 5)], "said twice, it does not bring back what has been deleted since"


def test_an_answer_told_again_is_not_taken_for_news_where_less_than_it_is_kept() -> None:
    kept: list[PartialObject] = []

    def keep(obj: PartialObject) -> PartialObject:
        kept.append(obj)
        return msgspec.structs.replace(obj, kind="kept")

    cache = Cache(THINGS, keep=keep)
    cache.replace([], Revision(1))
    cache.upsert(thing(2))
    cache.apply(event(thing(2), EventType.ADDED))
    assert len(kept) == 1
