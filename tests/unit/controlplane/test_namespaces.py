"""Namespaces: those that are always there, their accounts, and their end."""

from __future__ import annotations

from typing import Any

from sandpool.controlplane.garbage_collection import GarbageCollector
from sandpool.controlplane.namespaces import DEFAULT_NAMESPACES, NamespaceController, remaining_conditions
from sandpool.controlplane.objects.options import Deleted
from sandpool.model import kinds
from support.api.local_objects import START, Bench, bench, claim, config_map, pod, sandbox
from support.api.local_parts import quiet, running, until
from support.clocks.manual_clock import ManualClock


def life(b: Bench) -> NamespaceController:
    return NamespaceController(b.store, b.objects, ManualClock())


async def test_the_ones_that_are_always_there(b: Bench) -> None:
    async with running(life(b)):
        await until(lambda: all(not b.absent(kinds.SERVICE_ACCOUNTS, "default", name) for name in DEFAULT_NAMESPACES))
    assert b.names_of(kinds.NAMESPACES) == sorted(DEFAULT_NAMESPACES)
    revision = b.store.revision
    async with running(life(b)):
        await quiet(b.store)
    assert b.store.revision == revision, "a second start writes nothing"


async def test_default_account_comes_back(b: Bench) -> None:
    async with running(life(b)):
        await until(lambda: not b.absent(kinds.SERVICE_ACCOUNTS, "default"))
        first = b.get(kinds.SERVICE_ACCOUNTS, "default")
        await b.delete(kinds.SERVICE_ACCOUNTS, "default")
        await until(lambda: not b.absent(kinds.SERVICE_ACCOUNTS, "default"))
        assert b.get(kinds.SERVICE_ACCOUNTS, "default")["metadata"]["uid"] != first["metadata"]["uid"]


async def fill(b: Bench) -> None:
    await b.create(kinds.NAMESPACES, {"metadata": {"name": "t"}})
    await b.create(kinds.CONFIG_MAPS, config_map(), namespace="t")
    await b.create(kinds.CLAIMS, claim(), namespace="t")
    await b.create(kinds.SANDBOXES, sandbox(), namespace="t")
    await b.create(kinds.PODS, pod(), namespace="t")
    await b.create(kinds.EVENTS, {"metadata": {"name": "e"}, "involvedObject": {"namespace": "t"}}, namespace="t")
    await b.create(kinds.CONFIG_MAPS, config_map("elsewhere"))


async def test_deletion_takes_everything(b: Bench) -> None:
    async with running(life(b)):
        await fill(b)
        await until(lambda: not b.absent(kinds.SERVICE_ACCOUNTS, "default", "t"))
        await b.delete(kinds.NAMESPACES, "t")
        await until(lambda: b.absent(kinds.NAMESPACES, "t"))
        await quiet(b.store)
    for resource in kinds.ALL:
        if resource.namespaced:
            assert b.names_of(resource, "t") == [], resource.plural
    assert not b.absent(kinds.CONFIG_MAPS, "elsewhere")


async def test_deletion_asked_while_nobody_looked(b: Bench) -> None:
    await fill(b)
    await b.delete(kinds.NAMESPACES, "t")
    async with running(life(b)):
        await until(lambda: b.absent(kinds.NAMESPACES, "t"))
    assert b.names_of(kinds.CONFIG_MAPS, "t") == []


def conditions(b: Bench) -> dict[str, tuple[str, str, str]]:
    found = b.get(kinds.NAMESPACES, "t")["status"].get("conditions") or []
    return {condition["type"]: (condition["status"], condition["reason"], condition["message"]) for condition in found}


async def test_it_waits_for_finalizers_and_says_so(b: Bench) -> None:
    async with running(life(b)):
        await fill(b)
        await b.patch(kinds.CONFIG_MAPS, "c", {"metadata": {"finalizers": ["a.b/c"]}}, namespace="t")
        await b.delete(kinds.NAMESPACES, "t")
        await until(lambda: bool(conditions(b)))
        await quiet(b.store)
        assert conditions(b) == {
            "NamespaceDeletionDiscoveryFailure": (
                "False",
                "ResourcesDiscovered",
                "All resources successfully discovered",
            ),
            "NamespaceDeletionGroupVersionParsingFailure": (
                "False",
                "ParsedGroupVersions",
                "All legacy kube types successfully parsed",
            ),
            "NamespaceDeletionContentFailure": (
                "False",
                "ContentDeleted",
                "All content successfully deleted, may be waiting on finalization",
            ),
            "NamespaceContentRemaining": (
                "True",
                "SomeResourcesRemain",
                "Some resources are remaining: configmaps. has 1 resource instances",
            ),
            "NamespaceFinalizersRemaining": (
                "True",
                "SomeFinalizersRemain",
                "Some content in the namespace has finalizers remaining: a.b/c in 1 resource instances",
            ),
        }
        assert b.get(kinds.NAMESPACES, "t")["status"]["phase"] == "Terminating"
        await b.patch(kinds.CONFIG_MAPS, "c", {"metadata": {"finalizers": None}}, namespace="t")
        await until(lambda: b.absent(kinds.NAMESPACES, "t"))


async def test_it_waits_for_pods_in_their_grace(b: Bench) -> None:
    async with running(life(b)):
        await b.create(kinds.NAMESPACES, {"metadata": {"name": "t"}})
        await b.create(kinds.PODS, pod(node="n"), namespace="t")
        await b.delete(kinds.NAMESPACES, "t")
        await until(lambda: "deletionTimestamp" in b.get(kinds.PODS, "p", "t")["metadata"])
        await quiet(b.store)
        assert not b.absent(kinds.NAMESPACES, "t")
        await b.delete(kinds.PODS, "p", "t", grace=0)
        await until(lambda: b.absent(kinds.NAMESPACES, "t"))


async def test_foreign_finalizer_in_its_spec_is_not_ours_to_remove(b: Bench) -> None:
    async with running(life(b)):
        await b.create(kinds.NAMESPACES, {"metadata": {"name": "t"}, "spec": {"finalizers": ["a.b/c"]}})
        await b.delete(kinds.NAMESPACES, "t")
        await until(lambda: b.get(kinds.NAMESPACES, "t")["spec"].get("finalizers") == ["a.b/c"])
        await quiet(b.store)
        assert not b.absent(kinds.NAMESPACES, "t")
        await b.put(kinds.NAMESPACES, "t", {"metadata": {"name": "t"}, "spec": {}}, "finalize")
        await until(lambda: b.absent(kinds.NAMESPACES, "t"))


async def test_with_collection_beside_it(b: Bench) -> None:
    """Owners and dependents go both ways at once; nobody trips over the other."""
    async with running(life(b), GarbageCollector(b.store, b.objects, ManualClock())):
        await b.create(kinds.NAMESPACES, {"metadata": {"name": "t"}})
        for index in range(20):
            owner = await b.create(kinds.CLAIMS, claim(f"o{index}"), namespace="t")
            reference = {
                "apiVersion": owner["apiVersion"],
                "kind": "SandboxClaim",
                "name": f"o{index}",
                "uid": owner["metadata"]["uid"],
                "blockOwnerDeletion": True,
            }
            await b.create(kinds.SANDBOXES, sandbox(f"s{index}", ownerReferences=[reference]), namespace="t")
        await b.delete(kinds.NAMESPACES, "t")
        await until(lambda: b.absent(kinds.NAMESPACES, "t"))


async def test_many_namespaces_at_once() -> None:
    async with bench() as b, running(life(b)):
        for index in range(60):
            await b.create(kinds.NAMESPACES, {"metadata": {"name": f"t{index}"}})
            await b.create(kinds.CONFIG_MAPS, config_map(), namespace=f"t{index}")
        for index in range(60):
            await b.delete(kinds.NAMESPACES, f"t{index}")
        await until(lambda: len(b.names_of(kinds.NAMESPACES)) == len(DEFAULT_NAMESPACES))


def test_conditions_keep_their_time() -> None:
    calm: list[dict[str, Any]] = remaining_conditions([], {}, {}, [], START)
    assert {condition["status"] for condition in calm} == {"False"}
    later = START.replace(hour=1)
    assert remaining_conditions(calm, {}, {}, [], later) == calm
    failing = {c["type"]: c for c in remaining_conditions(calm, {}, {}, ["boom"], later)}
    trouble = failing["NamespaceDeletionContentFailure"]
    assert (trouble["status"], trouble["reason"]) == ("True", "ContentDeletionFailed")
    assert trouble["lastTransitionTime"] == "2026-01-01T01:00:00Z"
    assert trouble["message"] == "Failed to delete all resource types, 1 remaining: boom"


def test_conditions_that_somebody_else_wrote_without_a_time() -> None:
    present = [{"type": "NamespaceContentRemaining", "status": "False"}, {}]
    conditions = remaining_conditions(present, {}, {}, [], START)
    assert {condition["lastTransitionTime"] for condition in conditions} == {"2026-01-01T00:00:00Z"}


async def test_many_departures_are_reported_together(b: Bench) -> None:
    """Each report looks at all that is left, so one per departure would take the square of it."""
    await b.create(kinds.NAMESPACES, {"metadata": {"name": "t"}})
    for number in range(40):
        await b.create(kinds.CONFIG_MAPS, config_map(f"c{number}", finalizers=["a/b"]), "t")
    clock = ManualClock()
    async with running(NamespaceController(b.store, b.objects, clock)):
        await b.delete(kinds.NAMESPACES, "t")
        await quiet(b.store)
        before = b.get(kinds.NAMESPACES, "t")["metadata"]["resourceVersion"]
        for number in range(39):
            await b.patch(kinds.CONFIG_MAPS, f"c{number}", {"metadata": {"finalizers": None}}, namespace="t")
            await quiet(b.store, 10)
        assert b.get(kinds.NAMESPACES, "t")["metadata"]["resourceVersion"] == before
        clock.advance(1)
        await quiet(b.store)
        assert "configmaps. has 1 resource instances" in str(b.get(kinds.NAMESPACES, "t")["status"])
        await b.patch(kinds.CONFIG_MAPS, "c39", {"metadata": {"finalizers": None}}, namespace="t")
        await until(lambda: b.absent(kinds.NAMESPACES, "t"))


async def test_one_namespace_that_nobody_foresaw(b: Bench) -> None:
    delete, clock = b.objects.delete, ManualClock()
    broken = True

    async def sometimes(resource: Any, namespace: str, name: str, *rest: Any) -> Deleted:
        if broken and name == "odd":
            raise OverflowError("date value out of range")
        return await delete(resource, namespace, name, *rest)

    b.objects.delete = sometimes  # type: ignore[assignment, method-assign]
    for name, content in (("one", "odd"), ("two", "even")):
        await b.create(kinds.NAMESPACES, {"metadata": {"name": name}})
        await b.create(kinds.CONFIG_MAPS, config_map(content), name)
    async with running(NamespaceController(b.store, b.objects, clock)):
        for name in ("one", "two"):
            await b.delete(kinds.NAMESPACES, name)
        await until(lambda: b.absent(kinds.NAMESPACES, "two"))
        await quiet(b.store)
        assert not b.absent(kinds.NAMESPACES, "one")
        broken = False
        clock.advance(1)
        await until(lambda: b.absent(kinds.NAMESPACES, "one"))
