"""An object that is stored together with what its inline hook adds: all of it or, whatever goes wrong, the object alone."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import pytest

from sandpool.base.shares import Shares
from sandpool.controlplane.objects.inline import hold
from sandpool.controlplane.objects.keys import key_of
from sandpool.controlplane.objects.objects import Objects
from sandpool.controlplane.store.store import Store
from sandpool.kube.errors import AlreadyExists, Invalid, TooManyRequests, Unavailable
from sandpool.kube.inline import Annotate, InlineChange, Refusal
from sandpool.model import kinds
from sandpool.model.claim import SandboxClaim
from sandpool.model.metadata import Key, Revision
from sandpool.model.patches import Patch, json_patch
from sandpool.model.sandbox import Sandbox
from support.api.local_objects import START, Bench, claim, read, sandbox
from support.storage.logs import HeldLog

OWNER = {"apiVersion": "e/v1", "kind": "SandboxClaim", "name": "c", "uid": "u-c", "controller": True}
TRANSFER = json_patch([{"op": "add", "path": "/metadata/ownerReferences", "value": [OWNER]}])
CONDITION = {
    "type": "Ready", "status": "True", "reason": "DependenciesReady", "message": "",
    "lastTransitionTime": "2026-01-01T00:00:00Z",
}  # fmt: skip
STATUS = {"sandbox": {"name": "m"}, "conditions": [CONDITION]}


@dataclass
class FakeAddition:
    revision: Revision
    transfer: Patch = TRANSFER
    status: Mapping[str, Any] = field(default_factory=lambda: STATUS)
    annotations: Mapping[str, str] = field(default_factory=lambda: {"given": "m"})
    told: list[str] = field(default_factory=list)
    ends: list[tuple[SandboxClaim, Sandbox]] = field(default_factory=list)

    @property
    def changes(self) -> list[InlineChange]:
        return [InlineChange(kinds.SANDBOXES, Key("default", "m"), self.revision, self.transfer)]

    @changes.setter
    def changes(self, changes: object) -> None: ...

    def submitted(self, created: Revision, changed: Sequence[Revision], final: Revision) -> None:
        self.told.append(f"submitted {created} {' '.join(map(str, changed))} {final}")

    def committed(self, final: SandboxClaim, changed: Sequence[Sandbox]) -> None:
        self.told.append("committed")
        (sandbox,) = changed
        self.ends.append((final, sandbox))

    def abandoned(self) -> None:
        self.told.append("abandoned")


@dataclass
class FakeHook:
    """Adds the transfer of the sandbox `m`, as the cache knows it."""

    known: Revision
    more: dict[str, Any] = field(default_factory=dict)
    asked: list[SandboxClaim] = field(default_factory=list)
    additions: list[FakeAddition] = field(default_factory=list)
    decision: Annotate | Refusal | None = None  # in the place of an addition
    adds: bool = True
    full: Refusal | None = None
    held: list[str] = field(default_factory=list)

    def delay(self, namespace: str, body: Mapping[str, Any]) -> float:
        self.held.append(f"{namespace}/{body['metadata']['name']}")
        return 0.001

    def overflow(self, namespace: str, body: Mapping[str, Any]) -> Refusal | None:
        return self.full

    def creating(self, obj: SandboxClaim) -> FakeAddition | Annotate | Refusal | None:
        self.asked.append(obj)
        if not self.adds:
            return self.decision
        self.additions.append(FakeAddition(self.known, **self.more))
        return self.additions[-1]

    @property
    def told(self) -> list[str]:
        return [word for addition in self.additions for word in addition.told]


class Desk:
    """Objects over a log that commits when told, with one sandbox: namespace and sandbox are revisions 1 and 2."""

    def __init__(self, b: Bench, log: HeldLog) -> None:
        self.b, self.log = b, log
        self.hook = FakeHook(Revision(2))
        b.objects.hooks.register(kinds.CLAIMS, self.hook)

    def creating(self, name: str = "c", **options: Any) -> asyncio.Task[Any]:
        return asyncio.create_task(self.b.create(kinds.CLAIMS, claim(name), **options))

    async def created(self, body: dict[str, Any] | None = None, **options: Any) -> Any:
        task = asyncio.create_task(self.b.create(kinds.CLAIMS, body or claim("c"), **options))
        await self.commit()
        return await task

    async def commit(self) -> None:
        await turns()
        self.log.commit(len(self.log.held))
        await turns()

    @property
    def served(self) -> bool:
        """Whether what is stored has its sandbox; both or neither."""
        owned = "ownerReferences" in self.b.get(kinds.SANDBOXES, "m")["metadata"]
        assert owned == ("status" in self.b.get(kinds.CLAIMS, "c"))
        return owned


async def turns() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


@pytest.fixture
async def desk() -> AsyncIterator[Desk]:
    log = HeldLog()
    store = await Store.open(log)
    uids = count(1)
    made = Desk(Bench(store, Objects(store, lambda: START, lambda: f"uid-{next(uids)}")), log)
    for resource, body in ((kinds.NAMESPACES, {"metadata": {"name": "default"}}), (kinds.SANDBOXES, sandbox("m"))):
        task = asyncio.create_task(made.b.create(resource, body))
        await made.commit()
        await task
    yield made
    log.commit(len(log.held))
    await store.close()


async def test_one_commit_of_what_three_writes_would_have_left_behind(desk: Desk) -> None:
    """A claim never shows what is not its own yet."""
    watcher = desk.b.store.watch("", Revision(2))
    task = desk.creating()
    await turns()
    mine, its = key_of(kinds.CLAIMS, "default", "c"), key_of(kinds.SANDBOXES, "default", "m")
    assert [[entry.change.record.key for entry in unit] for unit in desk.log.held] == [[mine, its, mine]]
    assert not task.done()
    assert desk.hook.told == ["submitted 3 4 5"], "nothing is told before it is durable"
    await desk.commit()
    made = await task
    assert desk.hook.told == ["submitted 3 4 5", "committed"]
    created, taken, bound = await watcher.changes()
    assert (created.record.revision, taken.record.revision, bound.record.revision) == (3, 4, 5)
    assert read(created.record) == made, "what its creator is answered, and can watch from"
    assert read(bound.record)["status"] == STATUS
    assert (created.previous, bound.previous) == (None, created.record)
    assert desk.b.get(kinds.SANDBOXES, "m")["metadata"]["ownerReferences"] == [OWNER]


async def test_what_was_added_is_there_when_the_answer_comes(desk: Desk) -> None:
    made = await desk.created({**claim("c", annotations={"mine": "kept"}), "status": {"sandbox": {"name": "stolen"}}})
    assert "status" not in made
    assert made["metadata"]["annotations"] == {"mine": "kept"}
    found = desk.b.get(kinds.CLAIMS, "c")
    assert found["status"] == STATUS
    assert found["metadata"] == made["metadata"] | {
        "annotations": {"mine": "kept", "given": "m"},
        "resourceVersion": "5",
    }
    assert found["spec"] == made["spec"]
    assert list(found)[:3] == list(made)[:3] == ["apiVersion", "kind", "metadata"]


async def test_it_is_listed_once_in_its_last_state(desk: Desk) -> None:
    await desk.created()
    listed = desk.b.objects.list(kinds.CLAIMS, "default")
    assert [read(record).get("status") for record in listed.records] == [STATUS]


async def test_who_watches_sees_both_states_one_after_the_other(desk: Desk) -> None:
    """From before, and from the answer on: as if it had been served a moment later."""
    made = await desk.created()
    key = key_of(kinds.CLAIMS, "default", "c").rpartition("/")[0] + "/"
    for since, expected in ((2, [None, STATUS]), (int(made["metadata"]["resourceVersion"]), [STATUS])):
        changes = await desk.b.store.watch(key, Revision(since)).changes()
        assert [read(change.record).get("status") for change in changes] == expected


async def test_the_hook_gets_both_states_as_they_are_stored(desk: Desk) -> None:
    made = await desk.created()
    ((claim, box),) = desk.hook.additions[0].ends
    assert (claim.metadata.uid, claim.metadata.revision) == (made["metadata"]["uid"], 5)
    assert claim.status.sandbox is not None
    assert (claim.status.sandbox.name, claim.metadata.annotations) == ("m", {"given": "m"})
    assert (box.metadata.revision, [owner.uid for owner in box.metadata.owner_references]) == (4, ["u-c"])


async def test_the_claim_that_is_asked_for_has_all_but_a_revision_and_a_status(desk: Desk) -> None:
    made = await desk.created({**claim("c"), "status": {"sandbox": {"name": "stolen"}}})
    (asked,) = desk.hook.asked
    assert asked.metadata.uid == made["metadata"]["uid"]
    assert asked.metadata.key == Key("default", "c")
    assert (asked.metadata.generation, asked.metadata.creation_timestamp) == (1, START)
    assert (asked.metadata.revision, asked.status.sandbox) == (0, None)


async def test_without_annotations_none_are_made(desk: Desk) -> None:
    desk.hook.more = {"annotations": {}}
    await desk.created()
    assert "annotations" not in desk.b.get(kinds.CLAIMS, "c")["metadata"]
    assert desk.served


async def test_a_sandbox_that_changed_meanwhile_is_left_alone(desk: Desk) -> None:
    patching = asyncio.create_task(desk.b.patch(kinds.SANDBOXES, "m", {"metadata": {"labels": {"a": "b"}}}))
    await turns()  # decided, though not durable
    made = await desk.created()
    await patching
    assert desk.hook.told == ["abandoned"]
    assert made == desk.b.get(kinds.CLAIMS, "c")
    assert not desk.served


async def test_a_sandbox_that_is_gone(desk: Desk) -> None:
    deleting = asyncio.create_task(desk.b.delete(kinds.SANDBOXES, "m"))
    await turns()
    await desk.created()
    assert "status" not in desk.b.get(kinds.CLAIMS, "c")
    await deleting
    assert desk.hook.told == ["abandoned"]


@pytest.mark.parametrize(
    "operation",
    [
        {"op": "test", "path": "/metadata/uid", "value": "another"},
        {"op": "remove", "path": "/metadata/labels/absent"},
        {"op": "add", "path": "/spec/podTemplate/spec", "value": 7},
        {"op": "add", "path": "/metadata/labels", "value": {"a": "no label\n"}},
        {"op": "add", "path": "/metadata/annotations", "value": {"a": "x" * 2_000_000}},
    ],
    ids=["test", "absent", "schema", "label", "too large"],
)
async def test_a_transfer_that_is_refused(desk: Desk, operation: dict[str, Any]) -> None:
    desk.hook.more = {"transfer": json_patch([operation])}
    made = await desk.created()
    assert desk.hook.told == ["abandoned"]
    assert made["metadata"]["resourceVersion"] == "3"
    assert not desk.served


async def test_annotations_for_which_there_is_no_room(desk: Desk) -> None:
    """The user's own fill what an object may have of them."""
    mine = {"mine": "x" * (256 * 1024 - len("mine"))}
    await desk.created(claim("c", annotations=mine))
    assert desk.b.get(kinds.CLAIMS, "c")["metadata"]["annotations"] == mine
    assert desk.hook.told == ["abandoned"]
    assert not desk.served


async def test_nobody_is_asked_for_what_is_not_created(desk: Desk) -> None:
    await desk.created(dry_run=True)
    with pytest.raises(Invalid):
        await desk.created({"metadata": {"name": "c"}, "spec": {"warmPoolRef": {"name": 7}}})
    assert desk.hook.asked == []
    await desk.created()
    with pytest.raises(AlreadyExists):
        await desk.created()
    assert len(desk.hook.asked) == 1
    assert desk.hook.told == ["submitted 3 4 5", "committed"]


async def test_the_hook_is_called_for_its_own_resource_only(desk: Desk) -> None:
    task = asyncio.create_task(desk.b.create(kinds.SANDBOXES, sandbox("c")))
    await desk.commit()
    await task
    await desk.created()
    assert [obj.kind for obj in desk.hook.asked] == ["SandboxClaim"]


@pytest.mark.parametrize("hook", ["none", "adds nothing", "broken"])
async def test_without_an_addition_the_object_is_created_as_it_is(desk: Desk, hook: str) -> None:
    class Broken(FakeHook):
        def creating(self, obj: SandboxClaim) -> None:
            raise RuntimeError("a bug of ours")

    if hook == "none":
        desk.b.objects.hooks.by_name.clear()
    elif hook == "broken":
        desk.b.objects.hooks.register(kinds.CLAIMS, Broken(Revision(2)))
    else:
        desk.hook.adds = False
    made = await desk.created()
    assert made == desk.b.get(kinds.CLAIMS, "c")
    assert made["metadata"]["resourceVersion"] == "3"
    assert not desk.served


@pytest.mark.parametrize("room", [True, False])
async def test_a_claim_that_waits_is_created_with_what_is_noted_of_it(desk: Desk, room: bool) -> None:
    """No write more; and if there is no room for it, without."""
    notes = {"example.com/seen": "now"}
    desk.hook.adds, desk.hook.decision = False, Annotate(notes)
    own = {"a": "b" if room else "b" * (256 * 1024 - 10)}
    made = await desk.created(claim("c", annotations=own))
    assert made == desk.b.get(kinds.CLAIMS, "c")
    assert made["metadata"]["resourceVersion"] == "3"
    assert made["metadata"]["annotations"] == (own | notes if room else own)


async def test_beyond_a_bound_a_claim_is_told_to_come_back(desk: Desk) -> None:
    """Nothing of it is stored."""
    desk.hook.adds, desk.hook.decision = False, Refusal(7, "cannot wait for a sandbox now: 3 claims wait")
    with pytest.raises(
        TooManyRequests, match=r'"d" cannot wait for a sandbox now: 3 claims wait. Try again in 7 s'
    ) as told:
        await desk.b.create(kinds.CLAIMS, claim("d"))
    assert told.value.retry_after == 7
    assert desk.b.absent(kinds.CLAIMS, "d")


async def test_a_commit_that_fails_leaves_nothing(desk: Desk) -> None:
    task = desk.creating()
    await turns()
    desk.log.fail()
    with pytest.raises(Unavailable):
        await task
    assert desk.hook.told == ["submitted 3 4 5", "abandoned"]
    assert desk.b.absent(kinds.CLAIMS, "c")
    assert "ownerReferences" not in desk.b.get(kinds.SANDBOXES, "m")["metadata"]
    await desk.created()
    assert desk.served, "it can be tried again"


@pytest.mark.parametrize("fails", [False, True])
async def test_a_client_that_goes_away_undoes_nothing(desk: Desk, fails: bool) -> None:
    task = desk.creating()
    await turns()
    task.cancel()
    await turns()
    assert task.cancelled()
    assert desk.hook.told == ["submitted 3 4 5"], "nobody knows yet"
    if fails:
        desk.log.fail()
        await turns()
    else:
        await desk.commit()
    assert desk.hook.told == ["submitted 3 4 5", "abandoned" if fails else "committed"]
    assert desk.b.absent(kinds.CLAIMS, "c") is fails
    if not fails:
        assert desk.served


async def test_a_client_that_goes_away_in_the_moment_of_the_commit(desk: Desk) -> None:
    task = desk.creating()
    await turns()
    desk.log.commit(1)
    task.cancel()
    await turns()
    assert desk.hook.told == ["submitted 3 4 5", "committed"]


async def test_a_store_that_is_closed(desk: Desk) -> None:
    await desk.b.store.close()
    with pytest.raises(Unavailable):
        await desk.b.create(kinds.CLAIMS, claim("c"))
    assert desk.hook.told == ["abandoned"]


async def test_two_at_once_for_one_sandbox(desk: Desk) -> None:
    """Whatever the hook believes, only the first finds the sandbox as it was."""
    first, second = desk.creating("c"), desk.creating("d")
    await desk.commit()
    await asyncio.gather(first, second)
    assert ["status" in desk.b.get(kinds.CLAIMS, name) for name in "cd"] == [True, False]
    assert [addition.told for addition in desk.hook.additions] == [["submitted 3 4 5", "committed"], ["abandoned"]]


def held(desk: Desk, tenant: str, seats: Shares) -> Coroutine[Any, Any, None]:
    return hold(desk.hook, kinds.CLAIMS, "default", {"metadata": {"name": "c"}}, tenant, seats)


async def test_a_request_is_held_as_long_as_the_hook_says(desk: Desk) -> None:
    await held(desk, "", Shares(1))
    assert desk.hook.held == ["default/c"]


@pytest.mark.parametrize("tenant", ["", "team"])
async def test_only_so_many_are_held_at_a_time(desk: Desk, tenant: str) -> None:
    seats = Shares(1)
    first = asyncio.create_task(held(desk, tenant, seats))
    await asyncio.sleep(0)
    await held(desk, tenant, seats)  # which need not wait
    desk.hook.full = Refusal(7, "cannot wait for a sandbox now: many wait")
    with pytest.raises(TooManyRequests, match='"c" cannot wait for a sandbox now: many wait') as told:
        await held(desk, tenant, seats)
    assert told.value.retry_after == 7
    await first
    await held(desk, tenant, seats)
    assert (desk.hook.held, seats.holds(tenant), seats.refused) == (["default/c"] * 2, 0, 1)


async def test_who_goes_away_while_it_waits_makes_room(desk: Desk) -> None:
    seats = Shares(1)
    first = asyncio.create_task(held(desk, "team", seats))
    await asyncio.sleep(0)
    assert seats.used == 1
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)
    assert seats.used == 0
