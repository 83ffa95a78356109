"""Owner-reference collection: background, foreground, orphan; identity by uid; references that lead nowhere."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from sandpool.controlplane.garbage_collection import Collect, Disown, GarbageCollector, Keep, Owner, decide
from sandpool.controlplane.objects.objects import Objects
from sandpool.controlplane.objects.options import Deleted
from sandpool.controlplane.owner_graph import Node
from sandpool.controlplane.store.history import HistoryLimits
from sandpool.controlplane.store.port import Watcher
from sandpool.kube.api import Propagation
from sandpool.kube.errors import Unavailable
from sandpool.model import kinds
from sandpool.model.metadata import OwnerReference, Uid
from support.api.local_objects import START, Bench, bench, claim, config_map, sandbox
from support.api.local_parts import quiet, running, until
from support.clocks.manual_clock import ManualClock

Body = dict[str, Any]


def owned_by(*owners: Body, block: bool = False) -> list[Body]:
    return [
        {
            "apiVersion": owner["apiVersion"],
            "kind": owner["kind"],
            "name": owner["metadata"]["name"],
            "uid": owner["metadata"]["uid"],
            **({"blockOwnerDeletion": True} if block else {}),
        }
        for owner in owners
    ]


@pytest.fixture
async def collecting(b: Bench) -> AsyncIterator[GarbageCollector]:
    collector = GarbageCollector(b.store, b.objects, ManualClock())
    async with running(collector):
        yield collector


def collector(b: Bench) -> GarbageCollector:
    return GarbageCollector(b.store, b.objects, ManualClock())


async def test_background(b: Bench, collecting: GarbageCollector) -> None:
    owner = await b.create(kinds.CLAIMS, claim("owner"))
    child = await b.create(kinds.SANDBOXES, sandbox("child", ownerReferences=owned_by(owner)))
    await b.create(kinds.CONFIG_MAPS, config_map("grandchild", ownerReferences=owned_by(child)))
    await b.create(kinds.CONFIG_MAPS, config_map("bystander"))
    await b.delete(kinds.CLAIMS, "owner")
    await until(lambda: b.absent(kinds.CONFIG_MAPS, "grandchild"))
    assert b.absent(kinds.SANDBOXES, "child")
    assert not b.absent(kinds.CONFIG_MAPS, "bystander")


async def test_nothing_with_a_living_owner_goes(b: Bench, collecting: GarbageCollector) -> None:
    owner = await b.create(kinds.CLAIMS, claim("owner"))
    await b.create(kinds.CONFIG_MAPS, config_map("child", ownerReferences=owned_by(owner)))
    await b.patch(kinds.CLAIMS, "owner", {"metadata": {"labels": {"a": "b"}}})
    await quiet(b.store)
    assert not b.absent(kinds.CONFIG_MAPS, "child")


async def test_name_that_lives_on_is_another_owner(b: Bench, collecting: GarbageCollector) -> None:
    owner = await b.create(kinds.CLAIMS, claim("owner"))
    await b.create(kinds.CONFIG_MAPS, config_map("child", ownerReferences=owned_by(owner)))
    await b.delete(kinds.CLAIMS, "owner")
    again = await b.create(kinds.CLAIMS, claim("owner"))
    assert again["metadata"]["uid"] != owner["metadata"]["uid"]
    await until(lambda: b.absent(kinds.CONFIG_MAPS, "child"))
    assert not b.absent(kinds.CLAIMS, "owner")


async def test_born_with_a_dead_owner(b: Bench, collecting: GarbageCollector) -> None:
    dead = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "never", "uid": "never"}}
    await b.create(kinds.CONFIG_MAPS, config_map("child", ownerReferences=owned_by(dead)))
    await until(lambda: b.absent(kinds.CONFIG_MAPS, "child"))


async def test_owners_that_died_while_nobody_looked(b: Bench) -> None:
    owner = await b.create(kinds.CLAIMS, claim("owner"))
    await b.create(kinds.CONFIG_MAPS, config_map("child", ownerReferences=owned_by(owner)))
    await b.delete(kinds.CLAIMS, "owner")
    async with running(collector(b)):
        await until(lambda: b.absent(kinds.CONFIG_MAPS, "child"))


async def test_second_owner_keeps_it(b: Bench, collecting: GarbageCollector) -> None:
    first = await b.create(kinds.CLAIMS, claim("first"))
    second = await b.create(kinds.CLAIMS, claim("second"))
    await b.create(kinds.CONFIG_MAPS, config_map("child", ownerReferences=owned_by(first, second)))
    await b.delete(kinds.CLAIMS, "first")
    await until(lambda: len(b.get(kinds.CONFIG_MAPS, "child")["metadata"]["ownerReferences"]) == 1)
    (left,) = b.get(kinds.CONFIG_MAPS, "child")["metadata"]["ownerReferences"]
    assert left["name"] == "second"
    await b.delete(kinds.CLAIMS, "second")
    await until(lambda: b.absent(kinds.CONFIG_MAPS, "child"))


async def test_transfer_just_before_the_owner_dies(b: Bench, collecting: GarbageCollector) -> None:
    """The claim path: a member that changed hands outlives its pool."""
    pool = await b.create(kinds.CLAIMS, claim("pool"))
    taker = await b.create(kinds.CLAIMS, claim("taker"))
    await b.create(kinds.SANDBOXES, sandbox("member", ownerReferences=owned_by(pool)))
    await b.patch(kinds.SANDBOXES, "member", {"metadata": {"ownerReferences": owned_by(taker)}})
    await b.delete(kinds.CLAIMS, "pool")
    await quiet(b.store)
    assert not b.absent(kinds.SANDBOXES, "member")


async def test_owner_in_another_namespace_never_counts(b: Bench, collecting: GarbageCollector) -> None:
    await b.create(kinds.NAMESPACES, {"metadata": {"name": "other"}})
    owner = await b.create(kinds.CLAIMS, claim("owner"), namespace="other")
    await b.create(kinds.CONFIG_MAPS, config_map("child", ownerReferences=owned_by(owner)))
    await until(lambda: b.absent(kinds.CONFIG_MAPS, "child"))
    assert not b.absent(kinds.CLAIMS, "owner", "other")


async def test_cluster_scoped_owner(b: Bench, collecting: GarbageCollector) -> None:
    node = await b.create(kinds.NODES, {"metadata": {"name": "n"}})
    await b.create(kinds.LEASES, {"metadata": {"name": "l", "ownerReferences": owned_by(node)}})
    await quiet(b.store)
    assert not b.absent(kinds.LEASES, "l")
    await b.delete(kinds.NODES, "n")
    await until(lambda: b.absent(kinds.LEASES, "l"))


async def test_cluster_scoped_dependent_of_a_namespaced_owner_is_left_alone(
    b: Bench, collecting: GarbageCollector
) -> None:
    gone = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c", "uid": "c"}}
    await b.create(kinds.NODES, {"metadata": {"name": "n", "ownerReferences": owned_by(gone)}})
    await quiet(b.store)
    assert not b.absent(kinds.NODES, "n")


async def test_kinds_that_are_not_served_are_left_alone(b: Bench, collecting: GarbageCollector) -> None:
    foreign = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d", "uid": "d"}}
    await b.create(kinds.CONFIG_MAPS, config_map("child", ownerReferences=owned_by(foreign)))
    await quiet(b.store)
    assert not b.absent(kinds.CONFIG_MAPS, "child")


async def test_an_owner_in_a_version_that_is_not_served_is_not_looked_for(
    b: Bench, collecting: GarbageCollector
) -> None:
    owner = await b.create(kinds.CLAIMS, claim("owner"))
    (reference,) = owned_by(owner)
    old = {**reference, "apiVersion": "extensions.agents.x-k8s.io/v1alpha1"}
    await b.create(kinds.CONFIG_MAPS, config_map("child", ownerReferences=[old]))
    await b.delete(kinds.CLAIMS, "owner")
    await quiet(b.store)
    assert not b.absent(kinds.CONFIG_MAPS, "child")


async def test_foreground_waits_for_those_that_block(b: Bench, collecting: GarbageCollector) -> None:
    owner = await b.create(kinds.CLAIMS, claim("owner"))
    await b.create(
        kinds.CONFIG_MAPS, config_map("held", ownerReferences=owned_by(owner, block=True), finalizers=["a.b/c"])
    )
    await b.create(kinds.CONFIG_MAPS, config_map("free", ownerReferences=owned_by(owner)))
    await b.delete(kinds.CLAIMS, "owner", propagation=Propagation.FOREGROUND)
    await until(lambda: b.absent(kinds.CONFIG_MAPS, "free"))
    await until(lambda: "deletionTimestamp" in b.get(kinds.CONFIG_MAPS, "held")["metadata"])
    await quiet(b.store)
    assert b.get(kinds.CLAIMS, "owner")["metadata"]["finalizers"] == ["foregroundDeletion"]
    await b.patch(kinds.CONFIG_MAPS, "held", {"metadata": {"finalizers": None}})
    await until(lambda: b.absent(kinds.CLAIMS, "owner"))


async def test_foreground_does_not_wait_for_others(b: Bench, collecting: GarbageCollector) -> None:
    owner = await b.create(kinds.CLAIMS, claim("owner"))
    await b.create(kinds.CONFIG_MAPS, config_map("held", ownerReferences=owned_by(owner), finalizers=["a.b/c"]))
    await b.delete(kinds.CLAIMS, "owner", propagation=Propagation.FOREGROUND)
    await until(lambda: b.absent(kinds.CLAIMS, "owner"))
    assert "deletionTimestamp" in b.get(kinds.CONFIG_MAPS, "held")["metadata"]


async def test_foreground_goes_down_the_tree(b: Bench, collecting: GarbageCollector) -> None:
    top = await b.create(kinds.CLAIMS, claim("top"))
    middle = await b.create(kinds.SANDBOXES, sandbox("middle", ownerReferences=owned_by(top, block=True)))
    await b.create(
        kinds.CONFIG_MAPS, config_map("leaf", ownerReferences=owned_by(middle, block=True), finalizers=["a.b/c"])
    )
    await b.delete(kinds.CLAIMS, "top", propagation=Propagation.FOREGROUND)
    await until(lambda: "deletionTimestamp" in b.get(kinds.CONFIG_MAPS, "leaf")["metadata"])
    await quiet(b.store)
    assert b.get(kinds.SANDBOXES, "middle")["metadata"]["finalizers"] == ["foregroundDeletion"]
    assert not b.absent(kinds.CLAIMS, "top")
    await b.patch(kinds.CONFIG_MAPS, "leaf", {"metadata": {"finalizers": None}})
    await until(lambda: b.absent(kinds.CLAIMS, "top"))
    assert b.absent(kinds.SANDBOXES, "middle")


async def test_foreground_circle_ends(b: Bench, collecting: GarbageCollector) -> None:
    one = await b.create(kinds.CLAIMS, claim("one"))
    two = await b.create(kinds.CLAIMS, claim("two", ownerReferences=owned_by(one, block=True)))
    await b.patch(kinds.CLAIMS, "one", {"metadata": {"ownerReferences": owned_by(two, block=True)}})
    await b.delete(kinds.CLAIMS, "one", propagation=Propagation.FOREGROUND)
    await until(lambda: b.absent(kinds.CLAIMS, "one") and b.absent(kinds.CLAIMS, "two"))


async def test_both_of_a_circle_deleted_at_once(b: Bench, collecting: GarbageCollector) -> None:
    one = await b.create(kinds.CLAIMS, claim("one"))
    two = await b.create(kinds.CLAIMS, claim("two", ownerReferences=owned_by(one, block=True)))
    await b.patch(kinds.CLAIMS, "one", {"metadata": {"ownerReferences": owned_by(two, block=True)}})
    deletes = (b.delete(kinds.CLAIMS, name, propagation=Propagation.FOREGROUND) for name in ("one", "two"))
    await asyncio.gather(*deletes)
    await until(lambda: b.absent(kinds.CLAIMS, "one") and b.absent(kinds.CLAIMS, "two"))


async def test_circle_closed_when_all_in_it_are_leaving(b: Bench, collecting: GarbageCollector) -> None:
    one = await b.create(kinds.CLAIMS, claim("one"))
    two = await b.create(kinds.CLAIMS, claim("two", ownerReferences=owned_by(one, block=True)))
    leaf = config_map("leaf", ownerReferences=owned_by(two, block=True), finalizers=["a.b/c"])
    await b.create(kinds.CONFIG_MAPS, leaf)
    await b.delete(kinds.CLAIMS, "one", propagation=Propagation.FOREGROUND)
    await until(lambda: "deletionTimestamp" in b.get(kinds.CONFIG_MAPS, "leaf")["metadata"])
    await b.patch(kinds.CLAIMS, "one", {"metadata": {"ownerReferences": owned_by(two, block=True)}})
    await quiet(b.store)
    assert not b.absent(kinds.CLAIMS, "two"), "what it waits for is in no circle"
    await b.patch(kinds.CONFIG_MAPS, "leaf", {"metadata": {"finalizers": None}})
    await until(lambda: b.names_of(kinds.CLAIMS) == [])


async def test_waiting_in_line_is_no_circle(b: Bench, collecting: GarbageCollector) -> None:
    """A dependent that waits for its own dependents still holds its owner up, however it came to leave."""
    top = await b.create(kinds.CLAIMS, claim("top"))
    middle = await b.create(kinds.CLAIMS, claim("middle", ownerReferences=owned_by(top, block=True)))
    low = await b.create(kinds.CLAIMS, claim("low", ownerReferences=owned_by(middle, block=True)))
    leaf = config_map("leaf", ownerReferences=owned_by(low, block=True), finalizers=["a.b/c"])
    await b.create(kinds.CONFIG_MAPS, leaf)
    for name in ("low", "top"):
        await b.delete(kinds.CLAIMS, name, propagation=Propagation.FOREGROUND)
    await until(lambda: "deletionTimestamp" in b.get(kinds.CLAIMS, "middle")["metadata"])
    await quiet(b.store)
    assert b.names_of(kinds.CLAIMS) == ["low", "middle", "top"]
    await b.patch(kinds.CONFIG_MAPS, "leaf", {"metadata": {"finalizers": None}})
    await until(lambda: b.names_of(kinds.CLAIMS) == [])


async def test_foreground_resumes_after_a_restart(b: Bench) -> None:
    owner = await b.create(kinds.CLAIMS, claim("owner"))
    await b.create(kinds.CONFIG_MAPS, config_map("child", ownerReferences=owned_by(owner, block=True)))
    await b.delete(kinds.CLAIMS, "owner", propagation=Propagation.FOREGROUND)
    async with running(collector(b)):
        await until(lambda: b.absent(kinds.CLAIMS, "owner"))
    assert b.absent(kinds.CONFIG_MAPS, "child")


async def test_orphan(b: Bench, collecting: GarbageCollector) -> None:
    owner = await b.create(kinds.CLAIMS, claim("owner"))
    other = await b.create(kinds.CLAIMS, claim("other"))
    await b.create(kinds.CONFIG_MAPS, config_map("child", ownerReferences=owned_by(owner)))
    await b.create(kinds.CONFIG_MAPS, config_map("shared", ownerReferences=owned_by(owner, other)))
    await b.delete(kinds.CLAIMS, "owner", propagation=Propagation.ORPHAN)
    await until(lambda: b.absent(kinds.CLAIMS, "owner"))
    await quiet(b.store)
    assert "ownerReferences" not in b.get(kinds.CONFIG_MAPS, "child")["metadata"]
    assert [ref["name"] for ref in b.get(kinds.CONFIG_MAPS, "shared")["metadata"]["ownerReferences"]] == ["other"]


async def test_orphaning_comes_too_late_for_what_is_leaving(b: Bench, collecting: GarbageCollector) -> None:
    """The owner was changed after its dependents were marked for deletion: those that are left lose the reference, and go."""
    owner = await b.create(kinds.CLAIMS, claim("owner"))
    child = config_map("child", ownerReferences=owned_by(owner, block=True), finalizers=["a.b/c"])
    await b.create(kinds.CONFIG_MAPS, child)
    await b.delete(kinds.CLAIMS, "owner", propagation=Propagation.FOREGROUND)
    await until(lambda: "deletionTimestamp" in b.get(kinds.CONFIG_MAPS, "child")["metadata"])
    await b.delete(kinds.CLAIMS, "owner", propagation=Propagation.ORPHAN)
    await until(lambda: b.absent(kinds.CLAIMS, "owner"))
    assert "ownerReferences" not in b.get(kinds.CONFIG_MAPS, "child")["metadata"]
    await b.patch(kinds.CONFIG_MAPS, "child", {"metadata": {"finalizers": None}})
    assert b.absent(kinds.CONFIG_MAPS, "child")


async def test_falling_behind_costs_only_another_look() -> None:
    """So much at once that the log has forgotten it before the collector could read it."""
    async with bench(HistoryLimits(changes=8)) as b:
        collector = GarbageCollector(b.store, b.objects, ManualClock())
        loads = 0
        load = collector.load

        def counted() -> Watcher:
            nonlocal loads
            loads += 1
            return load()

        collector.load = counted  # type: ignore[method-assign]
        async with running(collector):
            owner = await b.create(kinds.CLAIMS, claim("owner"))
            bodies = [config_map(f"c{index}", ownerReferences=owned_by(owner)) for index in range(60)]
            await asyncio.gather(*(b.create(kinds.CONFIG_MAPS, body) for body in bodies))
            await until(lambda: loads > 1)
            await quiet(b.store)
            assert len(b.names_of(kinds.CONFIG_MAPS)) == 60
            await b.delete(kinds.CLAIMS, "owner")
            await until(lambda: b.names_of(kinds.CONFIG_MAPS) == [])


async def test_a_store_that_refuses_writes_is_asked_again(b: Bench) -> None:
    """Collection outlives a disk that fails for a while; the retry waits for the injected clock."""
    clock = ManualClock()
    owner = await b.create(kinds.CLAIMS, claim("owner"))
    await b.create(kinds.CONFIG_MAPS, config_map("child", ownerReferences=owned_by(owner)))
    await b.delete(kinds.CLAIMS, "owner")
    objects = Refusing(b.store, lambda: START, lambda: "unused")
    async with running(GarbageCollector(b.store, objects, clock)):
        await until(lambda: objects.refused == 1)
        await quiet(b.store)
        assert objects.refused == 1
        clock.advance(1)
        await until(lambda: b.absent(kinds.CONFIG_MAPS, "child"))


class Refusing(Objects):
    """Refuses its first delete."""

    refused = 0

    async def delete(self, *arguments: Any) -> Deleted:
        if not self.refused:
            self.refused += 1
            raise Unavailable("the disk is full")
        return await super().delete(*arguments)


async def test_leaving_dependent_is_not_deleted_again(b: Bench, collecting: GarbageCollector) -> None:
    owner = await b.create(kinds.CLAIMS, claim("owner"))
    await b.create(kinds.CONFIG_MAPS, config_map("child", ownerReferences=owned_by(owner), finalizers=["a.b/c"]))
    await b.delete(kinds.CONFIG_MAPS, "child")
    marked = b.get(kinds.CONFIG_MAPS, "child")
    await b.delete(kinds.CLAIMS, "owner")
    await quiet(b.store)
    assert b.get(kinds.CONFIG_MAPS, "child") == marked


REFERENCE = OwnerReference(api_version="v1", kind="ConfigMap", name="o", uid=Uid("o"))


@pytest.mark.parametrize(
    ("states", "leaving", "dependents", "fate"),
    [
        ((), False, False, Keep()),
        ((Owner.SOLID,), False, True, Keep()),
        ((Owner.ABSENT,), False, True, Collect()),
        ((Owner.ABSENT,), True, True, Keep()),
        ((Owner.ABSENT, Owner.UNKNOWN), False, False, Keep()),
        ((Owner.SOLID, Owner.ABSENT), False, False, Disown(frozenset({Uid("1")}))),
        ((Owner.SOLID, Owner.WAITING), False, False, Disown(frozenset({Uid("1")}))),
        ((Owner.WAITING,), False, False, Collect()),
        ((Owner.WAITING, Owner.ABSENT), False, True, Collect(Propagation.FOREGROUND)),
    ],
    ids=str,
)
def test_fates(states: tuple[Owner, ...], leaving: bool, dependents: bool, fate: object) -> None:
    node = Node("k", Uid("u"), (REFERENCE,), leaving, False, False)
    owners = {Uid(str(index)): state for index, state in enumerate(states)}
    assert decide(node, owners, has_dependents=dependents) == fate


async def test_two_references_with_one_uid(b: Bench) -> None:
    """One of them leads to the owner: that the other leads nowhere must not cost the object."""
    owner = await b.create(kinds.CONFIG_MAPS, config_map("owner"))
    (right,) = owned_by(owner)
    wrong = {**right, "name": "nobody"}
    async with running(GarbageCollector(b.store, b.objects, ManualClock())):
        for name, references in (("one", [right, wrong]), ("two", [wrong, right])):
            await b.create(kinds.CONFIG_MAPS, config_map(name, ownerReferences=references))
        await quiet(b.store)
        assert b.names_of(kinds.CONFIG_MAPS) == ["one", "owner", "two"]
        await b.delete(kinds.CONFIG_MAPS, "owner")
        await until(lambda: b.names_of(kinds.CONFIG_MAPS) == [])


async def test_one_object_that_nobody_foresaw(b: Bench) -> None:
    """It is tried again later; the others are collected."""
    delete, clock = b.objects.delete, ManualClock()
    broken = True

    async def sometimes(resource: Any, namespace: str, name: str, *rest: Any) -> Deleted:
        if broken and name == "odd":
            raise OverflowError("date value out of range")
        return await delete(resource, namespace, name, *rest)

    b.objects.delete = sometimes  # type: ignore[assignment, method-assign]
    gone = [{"apiVersion": "v1", "kind": "ConfigMap", "name": "nobody", "uid": "gone"}]
    async with running(GarbageCollector(b.store, b.objects, clock)):
        for name in ("even", "odd", "other"):
            await b.create(kinds.CONFIG_MAPS, config_map(name, ownerReferences=gone))
        await until(lambda: b.names_of(kinds.CONFIG_MAPS) == ["odd"])
        broken = False
        await quiet(b.store)
        clock.advance(1)
        await until(lambda: b.names_of(kinds.CONFIG_MAPS) == [])


async def test_what_its_owners_hold_is_not_even_judged(
    b: Bench, collecting: GarbageCollector, monkeypatch: pytest.MonkeyPatch
) -> None:
    judged: list[Uid] = []
    judge = collecting.reconcile

    async def recorded(uid: Uid) -> Uid | None:
        judged.append(uid)
        return await judge(uid)

    monkeypatch.setattr(collecting, "reconcile", recorded)
    owner = await b.create(kinds.CLAIMS, claim("owner"))
    child = await b.create(kinds.CONFIG_MAPS, config_map("child", ownerReferences=owned_by(owner)))
    await b.patch(kinds.CONFIG_MAPS, "child", {"data": {"x": "y"}})
    await quiet(b.store)
    assert judged == []
    await b.delete(kinds.CLAIMS, "owner")
    await until(lambda: b.absent(kinds.CONFIG_MAPS, "child"))
    assert judged == [child["metadata"]["uid"]]
