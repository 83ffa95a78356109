"""The template controller at work, in virtual time, on the real in-process Api."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from conformance.bodies import metadata, pod, sandbox, template
from sandpool.base.clock import LoopClock
from sandpool.controllers.template.controller import CONFLICT, Caches, TemplateController
from sandpool.controllers.template.policy import Options, policy_body
from sandpool.kube.api import Call
from sandpool.kube.errors import NotFound
from sandpool.loop.cache import Cache
from sandpool.loop.events import EventRecorder
from sandpool.loop.manager import Manager, Parts
from sandpool.loop.reflector import Reflector
from sandpool.loop.writes import Writes
from sandpool.model import labels
from sandpool.model.core import NetworkPolicy
from sandpool.model.kinds import EVENTS, NETWORK_POLICIES, PODS, SANDBOXES, TEMPLATES
from sandpool.model.metadata import Key
from sandpool.model.names import name_hash
from sandpool.model.patches import merge_patch
from sandpool.telemetry.metrics import Metrics
from sandpool.telemetry.reconcile_history import ReconcileHistory
from support.api.flaky_api import FlakyApi
from support.simulated.loop_cluster import START, a_cluster, half

pytestmark = pytest.mark.looptime

LABEL = {labels.TEMPLATE_REF_HASH: name_hash("t")}
POLICY = "t-network-policy"
SAME_HASH = ("black-viper-eel1", "white-seal-pink0")


class Process:
    def __init__(self, api: FlakyApi) -> None:
        self.api = api
        clock, metrics = LoopClock(START), Metrics()
        self.caches = Caches(Cache(TEMPLATES), Cache(NETWORK_POLICIES), Cache(SANDBOXES), Cache(PODS))
        every: list[Cache[Any]] = [
            self.caches.templates,
            self.caches.policies,
            self.caches.sandboxes,
            self.caches.pods,
        ]
        self.events = EventRecorder(api, clock, metrics, half, controller="template", instance="one")
        self.metrics = metrics
        self.controller = TemplateController(
            Writes(api, every), self.caches, clock, metrics, ReconcileHistory(), events=self.events
        )
        reflectors = [Reflector(api, cache, clock, metrics, half) for cache in every]
        parts = Parts(reflectors=reflectors, controllers=[self.controller.loop], services=[self.events.run])
        self.manager = Manager(parts)

    def reconciles(self) -> float:
        samples = [sample for metric in self.metrics.registry.collect() for sample in metric.samples]
        total = sum(s.value for s in samples if s.name == "sandpool_reconciles_total")
        assert total, "the name of the metric has changed"
        return total

    def writes(self) -> list[str]:
        verbs = ("create", "patch", "patch_status", "delete")
        return [call for call in self.api.calls if call.split()[0] in verbs and "event" not in call]


@asynccontextmanager
async def at_work(api: FlakyApi) -> AsyncIterator[Process]:
    process, stop = Process(api), asyncio.Event()
    running = asyncio.create_task(process.manager.run(stop))
    await process.manager.ready.wait()
    await settle()
    yield process
    stop.set()
    await running


async def settle() -> None:
    await asyncio.sleep(5)


async def policy(api: FlakyApi) -> NetworkPolicy | None:
    try:
        return await api.get(NETWORK_POLICIES, POLICY, "default")
    except NotFound:
        return None


async def test_a_template_gets_its_label_and_its_policy_in_two_writes() -> None:
    async with a_cluster() as api, at_work(api) as process:
        api.calls.clear()
        await api.create(TEMPLATES, template("t", networkPolicy={"egress": [{"ports": [{"port": 1}]}]}), "default")
        await settle()
        assert len(process.writes()) == 3, "the user's one and two of ours"
        made = await policy(api)
        assert made is not None
        assert made.metadata.labels == LABEL
        assert (await api.get(TEMPLATES, "t", "default")).metadata.labels == LABEL
        await api.patch(TEMPLATES, "t", merge_patch({"metadata": {"annotations": {"x": "y"}}}), "default")
        await settle()
        assert len(process.writes()) == 4, "and none in vain, though the server filled in the protocol"


async def test_edit_and_drift_and_unmanaged() -> None:
    async with a_cluster() as api:
        await api.create(TEMPLATES, template("t"), "default")
        async with at_work(api):
            strict = await policy(api)
            assert strict is not None
            drift = merge_patch({"spec": {"podSelector": {"matchLabels": {"app": "nobody"}}}})
            await api.patch(NETWORK_POLICIES, POLICY, drift, "default")
            await settle()
            repaired = await policy(api)
            assert repaired is not None
            assert repaired.spec == strict.spec
            await api.delete(NETWORK_POLICIES, POLICY, "default")
            await settle()
            assert await policy(api) is not None
            await api.patch(TEMPLATES, "t", merge_patch({"spec": {"networkPolicy": {"egress": [{}]}}}), "default")
            await settle()
            edited = await policy(api)
            assert edited is not None
            assert edited.spec != strict.spec
            unmanaged = merge_patch({"spec": {"networkPolicyManagement": "Unmanaged"}})
            await api.patch(TEMPLATES, "t", unmanaged, "default")
            await settle()
            assert await policy(api) is None


async def test_a_foreign_policy_is_told_and_left_alone_until_it_goes() -> None:
    async with a_cluster() as api:
        foreign = {"metadata": {"name": POLICY}, "spec": {"podSelector": {}}}
        before = await api.create(NETWORK_POLICIES, foreign, "default")
        await api.create(TEMPLATES, template("t"), "default")
        async with at_work(api) as process:
            assert await policy(api) == before
            (event,) = (await api.list(EVENTS, "default")).items
            assert (event.reason, event.type, event.involved_object.name) == (CONFLICT, "Warning", "t")
            seen = process.reconciles()
            await asyncio.sleep(3600)
            assert process.reconciles() == seen, "nothing is tried again before something changes"
            await api.delete(NETWORK_POLICIES, POLICY, "default")
            await settle()
            ours = await policy(api)
            assert ours is not None
            assert ours.metadata.labels == LABEL


async def test_the_policy_outlives_its_template_until_the_last_pod_is_gone() -> None:
    async with a_cluster() as api:
        await api.create(TEMPLATES, template("t"), "default")
        async with at_work(api) as process:
            await api.create(SANDBOXES, sandbox(metadata=metadata("box", labels=LABEL)), "default")
            await api.create(PODS, {**pod("box"), "metadata": metadata("box", labels=LABEL)}, "default")
            await settle()
            seen = process.reconciles()
            await api.create(SANDBOXES, sandbox(metadata=metadata("more", labels=LABEL)), "default")
            await api.delete(SANDBOXES, "more", "default")
            await settle()
            assert process.reconciles() == seen, "sandboxes that come and go wake nobody while the template is there"
            await api.delete(TEMPLATES, "t", "default")
            await settle()
            assert await policy(api) is not None
            await api.delete(SANDBOXES, "box", "default")
            await settle()
            assert await policy(api) is not None, "the pod still runs"
            await api.delete(PODS, "box", "default", grace=0)
            await settle()
            assert await policy(api) is None


async def test_leftovers_are_found_after_a_restart() -> None:
    async with a_cluster() as api:
        await api.create(TEMPLATES, template("t"), "default")
        async with at_work(api):
            pass
        await api.delete(TEMPLATES, "t", "default")
        assert await policy(api) is not None
        async with at_work(api):
            assert await policy(api) is None


async def test_a_lost_answer_to_the_create_is_settled() -> None:
    async with a_cluster() as api:
        await api.create(TEMPLATES, template("t"), "default")
        failures = 1

        async def lose(verb: str, plural: str) -> None:
            nonlocal failures
            if (verb, plural) == ("create", "networkpolicies") and failures:
                failures -= 1
                api.flow.clear()  # and the watch is late
                raise TimeoutError

        api.after = lose
        async with at_work(api) as process:
            assert await policy(api) is not None
            assert (await api.get(TEMPLATES, "t", "default")).metadata.labels == LABEL
            found = process.caches.policies.get(Key("default", POLICY))
            assert found is not None, "learned from the server itself, not from the watch"
            api.flow.set()
            await settle()
            assert process.writes().count("patch networkpolicies") == 0


async def test_n4_a_template_whose_name_has_the_hash_of_another_gets_no_policy_until_that_is_gone() -> None:
    first, second = SAME_HASH
    async with a_cluster() as api, at_work(api):
        await api.create(TEMPLATES, template(first), "default")
        await asyncio.sleep(2)
        await api.create(TEMPLATES, template(second), "default")
        await settle()
        assert await policies(api) == [f"{first}-network-policy"], "it would select the sandboxes of the first as well"
        (event,) = (await api.list(EVENTS, "default")).items
        assert (event.reason, event.type, event.involved_object.name) == (CONFLICT, "Warning", second)
        assert first in event.message
        await api.delete(TEMPLATES, first, "default")
        await settle()
        assert await policies(api) == [f"{second}-network-policy"]


async def test_n4_a_policy_that_a_gone_template_left_behind_counts_too() -> None:
    first, second = SAME_HASH
    mark = {labels.TEMPLATE_REF_HASH: name_hash(first)}
    async with a_cluster() as api, at_work(api):
        await api.create(TEMPLATES, template(first), "default")
        await api.create(PODS, {**pod("box"), "metadata": metadata("box", labels=mark)}, "default")
        await settle()
        await api.delete(TEMPLATES, first, "default")
        await settle()
        await api.create(TEMPLATES, template(second), "default")
        await settle()
        assert await policies(api) == [f"{first}-network-policy"], "its last pod still runs"
        await api.delete(PODS, "box", "default", grace=0)
        await settle()
        assert await policies(api) == [f"{second}-network-policy"], "and nobody had to ask again"


async def test_n4_two_templates_that_both_have_a_policy_keep_theirs() -> None:
    first, second = SAME_HASH
    async with a_cluster() as api:
        for name in SAME_HASH:
            await api.create(TEMPLATES, template(name), "default")
            made = policy_body(await api.get(TEMPLATES, name, "default"), Options())
            await api.create(NETWORK_POLICIES, made, "default")
        async with at_work(api):
            assert await policies(api) == [f"{first}-network-policy", f"{second}-network-policy"]


async def test_n4_names_in_other_namespaces_do_not_meet() -> None:
    first, second = SAME_HASH
    async with a_cluster(namespaces=("default", "other")) as api, at_work(api):
        await api.create(TEMPLATES, template(first), "default")
        await api.create(TEMPLATES, template(second), "other")
        await settle()
        assert len((await api.list(NETWORK_POLICIES)).items) == 2


async def policies(api: FlakyApi) -> list[str]:
    return [one.metadata.name for one in (await api.list(NETWORK_POLICIES, "default")).items]


class SlowTemplates(FlakyApi):
    """`flow` holds back the watch of templates and no other."""

    def stream(self, call: Call) -> Any:
        return (super() if call.resource == TEMPLATES else self.inner).stream(call)  # type: ignore[union-attr]


async def test_for_a_template_that_is_gone_no_policy_is_made_again() -> None:
    """Another leader knows that it is gone, and deletes what we make."""
    async with a_cluster() as api, at_work(slow := SlowTemplates(api)) as process:
        await api.create(TEMPLATES, template("t"), "default")
        await settle()
        slow.flow.clear()
        slow.calls.clear()
        await api.delete(TEMPLATES, "t", "default")
        for _ in range(5):
            if await policy(api) is not None:
                await api.delete(NETWORK_POLICIES, POLICY, "default")
            await settle()
        assert process.writes() == []
        assert slow.calls.count("get sandboxtemplates") == 1
        slow.flow.set()


async def test_a_policy_that_is_deleted_again_and_again_is_made_less_and_less_often() -> None:
    async with a_cluster() as api, at_work(FlakyApi(api)) as process:
        await api.create(TEMPLATES, template("t"), "default")
        for _ in range(2000):  # 20 seconds
            if await policy(api) is not None:
                await api.delete(NETWORK_POLICIES, POLICY, "default")
            await asyncio.sleep(0.01)
        assert 3 <= process.writes().count("create networkpolicies") <= 7
        await asyncio.sleep(30)
        assert await policy(api) is not None


async def test_who_manages_a_network_now_and_then_does_not_wait() -> None:
    async with a_cluster() as api, at_work(FlakyApi(api)) as process:
        await api.create(TEMPLATES, template("t"), "default")
        await settle()
        for _ in range(4):
            for management in ("Unmanaged", "Managed"):
                await api.patch(
                    TEMPLATES, "t", merge_patch({"spec": {"networkPolicyManagement": management}}), "default"
                )
                await settle()
            assert await policy(api) is not None
        assert not [call for call in process.api.calls if call.startswith("get")]
