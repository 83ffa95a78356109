"""The cache against a server whose watch lags, whose lists come late and whose answers overtake everything, or get lost."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime

import msgspec
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from sandpool.kube.api import Event, EventType
from sandpool.loop.cache import Cache
from sandpool.model.metadata import Key, Metadata, PartialObject, Revision, Uid
from sandpool.model.resource import Resource

THINGS: Resource[PartialObject] = Resource("test", "v1", "things", "Thing", PartialObject)
NAMES = st.sampled_from(["a", "b"])  # few, so that things meet
COLOURS = st.sampled_from(["red", "blue"])
NOW = datetime(2026, 1, 1, tzinfo=UTC)


class Server:
    """The truth: objects, and the log of how they came to be."""

    def __init__(self) -> None:
        self.objects: dict[Key, PartialObject] = {}
        self.log: list[Event[PartialObject]] = []
        self.uids = 0

    @property
    def revision(self) -> Revision:
        return Revision(len(self.log))

    def write(self, type_: EventType, meta: Metadata) -> PartialObject:
        revision = Revision(len(self.log) + 1)
        obj = PartialObject(metadata=msgspec.structs.replace(meta, resource_version=str(revision)))
        self.log.append(Event(type_, obj, revision))
        if type_ is EventType.DELETED:
            del self.objects[meta.key]
        else:
            self.objects[meta.key] = obj
        return obj

    def create(self, name: str, colour: str, finalizers: tuple[str, ...]) -> PartialObject | None:
        if Key("", name) in self.objects:
            return None
        self.uids += 1
        uid = Uid(f"{name}-{self.uids}")
        return self.write(
            EventType.ADDED, Metadata(name=name, uid=uid, labels={"colour": colour}, finalizers=finalizers)
        )

    def update(self, name: str, **changes: object) -> PartialObject | None:
        old = self.objects.get(Key("", name))
        if old is None:
            return None
        meta = msgspec.structs.replace(old.metadata, **changes)
        gone = meta.leaving and not meta.finalizers
        return self.write(EventType.DELETED if gone else EventType.MODIFIED, meta)

    def delete(self, name: str, uid: Uid | None = None) -> PartialObject | str:
        """What a client is answered: `gone`, an object that stays for now, or the name of an error."""
        old = self.objects.get(Key("", name))
        if old is None:
            return "NotFound"
        if uid not in (None, old.metadata.uid):
            return "Conflict"
        if not old.metadata.finalizers:
            self.write(EventType.DELETED, old.metadata)
            return "gone"
        if old.metadata.leaving:
            return old
        return self.write(EventType.MODIFIED, msgspec.structs.replace(old.metadata, deletion_timestamp=NOW))


@dataclass(frozen=True)
class Deletion:
    """A delete of ours under way: not processed yet, or with the answer that travels back."""

    key: Key
    uid: Uid
    doomed: bool
    answer: PartialObject | str | None = None


def _colour(thing: PartialObject) -> tuple[str, ...]:
    value = thing.metadata.labels.get("colour")
    return () if value is None else (value,)


class CacheMachine(RuleBasedStateMachine):
    @initialize()
    def start(self) -> None:
        self.server = Server()
        self.cache: Cache[PartialObject] = Cache(THINGS)
        self.colours = self.cache.index(_colour)
        self.seen: dict[Key, PartialObject] = {}  # what a subscriber believes
        self.newest: dict[Key, int] = {}
        self.ended: set[Uid] = set()
        self.cache.subscribe(self.step)
        self.answers: list[PartialObject] = []  # to our creates and updates, on their way
        self.deletions: list[Deletion] = []
        self.missing: list[tuple[Key, Uid]] = []  # what was here when we asked, and the server did not know: on its way
        self.listing: tuple[list[PartialObject], Revision] | None = ([], Revision(0))  # a list on its way: no watch yet

    def step(self, old: PartialObject | None, new: PartialObject | None) -> None:
        obj = new or old
        assert obj is not None
        key, uid = obj.metadata.key, obj.metadata.uid
        assert self.seen.get(key) is old, "a step was lost"
        assert self.cache.get(key) is new, "told before it was so"
        if old is not None and new is not None:
            assert old.metadata.uid == new.metadata.uid, "two objects in one step"
        if new is None:
            del self.seen[key]
            self.ended.add(uid)
            alive = self.server.objects.get(key)
            assert alive is None or alive.metadata.uid != uid, "said to be gone, but it lives"
        else:
            self.seen[key] = new
            assert uid not in self.ended, "back from the dead"
            assert new.metadata.revision > self.newest.get(key, 0), "went backwards, or told twice"
            self.newest[key] = new.metadata.revision

    # Others write

    @rule(name=NAMES, colour=COLOURS, held=st.booleans())
    def others_create(self, name: str, colour: str, held: bool) -> None:
        self.server.create(name, colour, ("hold",) if held else ())

    @rule(name=NAMES, colour=COLOURS)
    def others_update(self, name: str, colour: str) -> None:
        self.server.update(name, labels={"colour": colour})

    @rule(name=NAMES)
    def others_delete(self, name: str) -> None:
        self.server.delete(name)

    @rule(name=NAMES)
    def finalize(self, name: str) -> None:
        self.server.update(name, finalizers=())

    # We write; the answer comes later, or never

    @rule(name=NAMES, colour=COLOURS, held=st.booleans(), lost=st.booleans())
    def we_create(self, name: str, colour: str, held: bool, lost: bool) -> None:
        answer = self.server.create(name, colour, ("hold",) if held else ())
        if answer is not None and not lost:
            self.answers.append(answer)

    @rule(name=NAMES, colour=COLOURS)
    def we_update(self, name: str, colour: str) -> None:
        answer = self.server.update(name, labels={"colour": colour})
        if answer is not None and answer.metadata.key in self.server.objects:
            self.answers.append(answer)

    @rule(name=NAMES)
    def we_get(self, name: str) -> None:
        key = Key("", name)
        if (answer := self.server.objects.get(key)) is not None:
            self.answers.append(answer)
        elif (known := self.cache.get(key)) is not None:
            self.missing.append((key, known.metadata.uid))

    @precondition(lambda self: self.missing)
    @rule(data=st.data())
    def not_found_arrives(self, data: st.DataObject) -> None:
        key, uid = self.missing.pop(data.draw(st.integers(0, len(self.missing) - 1)))
        self.cache.missing(key, uid)
        shown = self.cache.get(key)
        assert shown is None or shown.metadata.uid != uid

    @precondition(lambda self: self.answers)
    @rule(data=st.data())
    def answer_arrives(self, data: st.DataObject) -> None:
        self.hear_of(self.answers.pop(data.draw(st.integers(0, len(self.answers) - 1))))

    def hear_of(self, answer: PartialObject) -> None:
        self.cache.upsert(answer)
        shown = self.cache.get(answer.metadata.key)
        if shown is None or shown.metadata.uid != answer.metadata.uid:
            alive = self.server.objects.get(answer.metadata.key)
            assert alive is None or alive.metadata.uid != answer.metadata.uid, "our own write is not to be seen"
        else:
            assert shown.metadata.revision >= answer.metadata.revision

    @rule(name=NAMES)
    def we_delete(self, name: str) -> None:
        if (obj := self.cache.get(Key("", name))) is not None:
            doomed = self.cache.mark_deleting(obj.metadata.key, obj.metadata.uid)
            assert doomed
            assert self.cache.leaving(obj)
            self.deletions.append(Deletion(obj.metadata.key, obj.metadata.uid, doomed))

    @rule(name=NAMES)
    def we_delete_and_hear_at_once(self, name: str) -> None:
        """The usual case, and the one that tombstones are for: the answer is here long before the watch."""
        if (obj := self.cache.get(Key("", name))) is not None:
            self.cache.mark_deleting(obj.metadata.key, obj.metadata.uid)
            answer = self.server.delete(name, obj.metadata.uid)
            self.deletions.append(Deletion(obj.metadata.key, obj.metadata.uid, True, answer))
            self.hear(self.deletions.pop())

    @rule(name=NAMES, colour=COLOURS)
    def we_create_and_hear_at_once(self, name: str, colour: str) -> None:
        answer = self.server.create(name, colour, ())
        if answer is not None:
            self.hear_of(answer)

    @precondition(lambda self: any(d.answer is None for d in self.deletions))
    @rule(data=st.data())
    def delete_is_processed(self, data: st.DataObject) -> None:
        index = data.draw(st.sampled_from([n for n, d in enumerate(self.deletions) if d.answer is None]))
        deletion = self.deletions[index]
        self.deletions[index] = replace(deletion, answer=self.server.delete(deletion.key.name, deletion.uid))

    @precondition(lambda self: self.deletions)
    @rule(data=st.data(), lost=st.booleans())
    def delete_is_answered(self, data: st.DataObject, lost: bool) -> None:
        """Also before it was processed: then it never will be, as with a refused connection."""
        deletion = self.deletions.pop(data.draw(st.integers(0, len(self.deletions) - 1)))
        self.hear(deletion, lost)

    def hear(self, deletion: Deletion, lost: bool = False) -> None:
        if lost or deletion.answer is None or deletion.answer == "Conflict":
            self.cache.unmark_deleting(deletion.uid)
        elif isinstance(deletion.answer, PartialObject):
            self.cache.unmark_deleting(deletion.uid)
            self.cache.upsert(deletion.answer)
        else:
            self.cache.gone(deletion.key, deletion.uid)
            shown = self.cache.get(deletion.key)
            assert shown is None or shown.metadata.uid != deletion.uid

    # The watch and the list, in their own time

    @precondition(lambda self: self.listing is None and self.cache.revision < self.server.revision)
    @rule(count=st.integers(1, 4))
    def events_arrive(self, count: int) -> None:
        for event in self.server.log[self.cache.revision :][:count]:
            self.cache.apply(event)
            assert self.cache.revision == event.revision

    @precondition(lambda self: self.listing is None and self.cache.revision > 0)
    @rule(data=st.data())
    def an_event_arrives_again(self, data: st.DataObject) -> None:
        reached = self.cache.revision
        self.cache.apply(self.server.log[data.draw(st.integers(0, reached - 1))])
        assert self.cache.revision == reached

    @precondition(lambda self: self.listing is None and self.cache.revision == self.server.revision)
    @rule()
    def bookmark_arrives(self) -> None:
        self.cache.apply(Event(EventType.BOOKMARK, None, self.server.revision))

    @precondition(lambda self: self.listing is None)
    @rule()
    def watch_breaks_and_list_is_made(self) -> None:
        self.listing = (list(self.server.objects.values()), self.server.revision)

    @precondition(lambda self: self.listing is not None)
    @rule()
    def list_arrives(self) -> None:
        assert self.listing is not None
        self.cache.replace(*self.listing)
        self.listing = None
        assert self.cache.synced.is_set()

    # What always holds

    @invariant()
    def same_for_subscribers_and_indexes(self) -> None:
        assert {obj.metadata.key: obj for obj in self.cache} == self.seen
        for colour in ("red", "blue"):
            expected = {key for key, obj in self.seen.items() if obj.metadata.labels["colour"] == colour}
            assert {obj.metadata.key for obj in self.colours.get(colour)} == expected
            assert self.colours.count(colour) == len(expected)

    @invariant()
    def leaving_means_asked_for_or_marked(self) -> None:
        asked = {deletion.uid for deletion in self.deletions}
        for obj in self.cache:
            if self.cache.leaving(obj):
                assert obj.metadata.leaving or obj.metadata.uid in asked
            else:
                assert obj.metadata.uid not in asked

    def teardown(self) -> None:
        """Once everything has arrived, the cache is the server, and nothing is left of the tombstones."""
        if not hasattr(self, "cache"):
            return
        for deletion in self.deletions:
            self.cache.unmark_deleting(deletion.uid)
        self.deletions.clear()
        if self.listing is not None:
            self.list_arrives()
        for event in self.server.log[self.cache.revision :]:
            self.cache.apply(event)
        for answer in self.answers:
            self.cache.upsert(answer)
        assert {obj.metadata.key: obj for obj in self.cache} == self.server.objects
        assert not self.cache.tombstones
        assert not self.cache.floors
        assert self.cache.revision == self.server.revision
        self.same_for_subscribers_and_indexes()


TestCache = CacheMachine.TestCase
TestCache.settings = settings(max_examples=80, stateful_step_count=50, deadline=None)


@pytest.mark.long
class TestCacheLong(CacheMachine.TestCase):  # type: ignore[misc, valid-type]
    settings = settings(max_examples=1500, stateful_step_count=100, deadline=None)
