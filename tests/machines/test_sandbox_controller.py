"""The Sandbox controller against users, kubelets and accidents in any order, on a real Api in virtual time.

Never a second pod. Once nothing happens any more, what is written is what a fresh look at the server would write: no step is
left to do, the status says what is, and looking again writes nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import AsyncExitStack
from datetime import timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import note as remark
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

from integration.controllers.box_cluster import Cluster, controlled
from sandpool.base.errors import SandpoolError
from sandpool.controllers.sandbox.observe import Caches, Observer
from sandpool.controllers.sandbox.options import Options
from sandpool.controllers.sandbox.plan import plan_sandbox
from sandpool.controllers.sandbox.status import Trouble, expired_status, status_of, status_patch
from sandpool.kube.errors import ApiError, Conflict, InternalError, TooManyRequests, Unreachable
from sandpool.loop.cache import Cache
from sandpool.model import kinds
from sandpool.model.blueprint import pod_spec_hash
from sandpool.model.kinds import PERSISTENT_VOLUME_CLAIMS, PODS, POOLS, SANDBOXES, SERVICES
from sandpool.model.labels import (
    ADOPTABLE,
    POD_NAME,
    POD_SPEC_HASH,
    SANDBOX_NAME_HASH,
    SANDBOX_UID,
    TRACE_CONTEXT,
    WARM_POOL,
)
from sandpool.model.metadata import Key
from sandpool.model.names import name_hash
from sandpool.model.patches import Patch, PatchType, json_patch, merge_patch
from sandpool.model.resource import Resource
from sandpool.model.sandbox import Sandbox
from sandpool.model.times import seconds
from support.api.flaky_api import nothing
from support.clocks.virtual_loop import VirtualLoop
from support.simulated.loop_cluster import a_cluster

NAMES = st.sampled_from(["a", "b"])
CALLS = st.sampled_from(
    [
        "create pods",
        "patch pods",
        "delete pods",
        "create services",
        "patch services",
        "delete services",
        "patch sandboxes",
        "create persistentvolumeclaims",
        "patch_status sandboxes",
        "delete sandboxes",
    ]
)
ERRORS = st.sampled_from([Conflict, InternalError, TooManyRequests, Unreachable])
PAUSES = st.sampled_from([0.0, 0.0, 0.001, 0.5, 2.0, 40.0])
SPEC = {"nodeName": "n1", "containers": [{"name": "main", "image": "python", "ports": [{"containerPort": 80}]}]}
EXTENSIONS = "extensions.agents.x-k8s.io/v1beta1"
FOREIGN = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "uid-web", "controller": True}
STORAGE = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
KINDS: tuple[Resource[Any], ...] = (
    SANDBOXES, PODS, SERVICES, PERSISTENT_VOLUME_CLAIMS, POOLS, kinds.CLAIMS,
)  # fmt: skip
Action = Callable[[], Awaitable[object]]

EDITS: dict[str, dict[str, Any]] = {
    "suspend": {"operatingMode": "Suspended"},
    "resume": {"operatingMode": "Running"},
    "want a Service": {"service": True},
    "want no Service": {"service": False},
    "leave the Service": {"service": None},
    "label": {"podTemplate": {"metadata": {"labels": {"app": "x"}, "annotations": {"note": "y"}}}},
    "unlabel": {"podTemplate": {"metadata": None}},
    "other image": {"podTemplate": {"spec": {"containers": [{"name": "main", "image": "other"}]}}},
    "same image": {"podTemplate": {"spec": SPEC}},
    "live for ever": {"shutdownTime": None},
    "delete at the end": {"shutdownPolicy": "Delete"},
    "retain at the end": {"shutdownPolicy": "Retain"},
}
LABELS = [SANDBOX_NAME_HASH, SANDBOX_UID, "app", WARM_POOL]


class SandboxMachine(RuleBasedStateMachine):
    @initialize()
    def start(self) -> None:
        self.loop = VirtualLoop()
        self.stack = AsyncExitStack()
        self.armed: dict[str, Action] = {}
        self.made = 0
        self.cluster: Cluster = self.run(self.enter())
        for name, pooled in (("a", False), ("b", True)):
            self.make(name, True, False, pooled, 0.5)
            self.run_the_pod(name, 2.0)

    async def enter(self) -> Cluster:
        api = await self.stack.enter_async_context(a_cluster())
        template = {"podTemplate": {"spec": SPEC}}
        await api.create(kinds.TEMPLATES, {"metadata": {"name": "t"}, "spec": template}, "default")
        await api.create(POOLS, {"metadata": {"name": "p"}, "spec": {"sandboxTemplateRef": {"name": "t"}}}, "default")
        await api.create(kinds.CLAIMS, {"metadata": {"name": "c"}, "spec": {"warmPoolRef": {"name": "p"}}}, "default")
        return await self.stack.enter_async_context(controlled(api))

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return self.loop.run_until_complete(work)

    def do(self, action: Action, pause: float) -> None:
        self.run(self.attempt(action, pause))

    async def attempt(self, action: Action, pause: float) -> None:
        try:
            await action()
        except ApiError as error:
            remark(f"nothing to do it to: {error}")
        await asyncio.sleep(pause)
        await self.never_two_pods()

    async def never_two_pods(self) -> None:
        for box in (await self.cluster.api.list(SANDBOXES, "default")).items:
            pods = [
                pod.metadata.name
                for pod in (await self.cluster.api.list(PODS, "default")).items
                if pod.metadata.controller is not None
                and pod.metadata.controller.uid == box.metadata.uid
                and not pod.metadata.leaving
                and not pod.metadata.name.startswith("stray")
            ]
            assert len(pods) < 2, pods

    # Users

    @rule(name=NAMES, service=st.sampled_from([True, None]), stored=st.booleans(), pooled=st.booleans(), pause=PAUSES)
    def make(self, name: str, service: bool | None, stored: bool, pooled: bool, pause: float) -> None:
        async def create() -> None:
            metadata: dict[str, Any] = {"name": name}
            if pooled:
                pool = await self.cluster.api.get(POOLS, "p", "default")
                metadata |= {"labels": {WARM_POOL: "w"}, "annotations": {POD_NAME: name}}
                metadata["ownerReferences"] = [_owner("SandboxWarmPool", pool)]
            spec = {"podTemplate": {"spec": SPEC}, "service": service}
            if stored:
                spec["volumeClaimTemplates"] = [{"metadata": {"name": "data"}, "spec": STORAGE}]  # type: ignore[assignment]
            await self.cluster.api.create(SANDBOXES, {"metadata": metadata, "spec": spec}, "default")

        self.do(create, pause)

    @rule(name=NAMES, what=st.sampled_from(sorted(EDITS)), pause=PAUSES)
    def edit(self, name: str, what: str, pause: float) -> None:
        self.do(lambda: self.cluster.edit(name, **EDITS[what]), pause)

    @rule(name=NAMES, after=st.sampled_from([-1, 1, 100]), pause=PAUSES)
    def limit(self, name: str, after: int, pause: float) -> None:
        end = self.cluster.clock
        self.do(lambda: self.cluster.edit(name, shutdownTime=seconds(end.now() + timedelta(seconds=after))), pause)

    @rule(name=NAMES, pause=PAUSES)
    def claim(self, name: str, pause: float) -> None:
        async def transfer() -> None:
            claim = await self.cluster.api.get(kinds.CLAIMS, "c", "default")
            operations = [
                {"op": "replace", "path": "/metadata/ownerReferences/0", "value": _owner("SandboxClaim", claim)},
                {"op": "remove", "path": f"/metadata/labels/{WARM_POOL.replace('/', '~1')}"},
                {"op": "add", "path": f"/metadata/annotations/{TRACE_CONTEXT.replace('/', '~1')}", "value": "{}"},
            ]
            await self.cluster.api.patch(SANDBOXES, name, json_patch(operations), "default")  # type: ignore[arg-type]

        self.do(transfer, pause)

    @rule(name=NAMES, resource=st.sampled_from([SANDBOXES, PODS, SERVICES, PERSISTENT_VOLUME_CLAIMS]), pause=PAUSES)
    def delete(self, name: str, resource: Resource[Any], pause: float) -> None:
        target = f"data-{name}" if resource is PERSISTENT_VOLUME_CLAIMS else name
        self.do(lambda: self.cluster.api.delete(resource, target, "default"), pause)

    @rule(name=NAMES, resource=st.sampled_from([PODS, SERVICES]), label=st.sampled_from(LABELS), pause=PAUSES)
    def unlabel(self, name: str, resource: Resource[Any], label: str, pause: float) -> None:
        patch = merge_patch({"metadata": {"labels": {label: None}}})
        self.do(lambda: self.cluster.api.patch(resource, name, patch, "default"), pause)

    @rule(name=NAMES, resource=st.sampled_from([PODS, SERVICES, PERSISTENT_VOLUME_CLAIMS]), pause=PAUSES)
    def orphan(self, name: str, resource: Resource[Any], pause: float) -> None:
        target = f"data-{name}" if resource is PERSISTENT_VOLUME_CLAIMS else name
        patch = merge_patch({"metadata": {"ownerReferences": None}})
        self.do(lambda: self.cluster.api.patch(resource, target, patch, "default"), pause)

    @rule(name=NAMES, port=st.integers(1, 3), pause=PAUSES)
    def bend_the_service(self, name: str, port: int, pause: float) -> None:
        patch = merge_patch({"spec": {"selector": {"app": "x"}, "ports": [{"port": port}]}})
        self.do(lambda: self.cluster.api.patch(SERVICES, name, patch, "default"), pause)

    @rule(name=NAMES, how=st.sampled_from(["adoptable", "foreign", "nobody's"]), pause=PAUSES)
    def pod_before_the_sandbox(self, name: str, how: str, pause: float) -> None:
        self.do(lambda: self.cluster.api.create(PODS, _pod(name, how), "default"), pause)

    @rule(name=NAMES, how=st.sampled_from(["adoptable", "foreign", "nobody's"]), pause=PAUSES)
    def point(self, name: str, how: str, pause: float) -> None:
        """At a pod of another name."""

        async def elsewhere() -> None:
            self.made += 1
            other = f"other-{self.made}"
            await self.cluster.api.create(PODS, _pod(other, how), "default")
            patch = merge_patch({"metadata": {"annotations": {POD_NAME: other}}})
            await self.cluster.api.patch(SANDBOXES, name, patch, "default")

        self.do(elsewhere, pause)

    @rule(name=NAMES, pause=PAUSES)
    def stray(self, name: str, pause: float) -> None:
        """A pod that somebody else made in the sandbox's name."""

        async def forge() -> None:
            self.made += 1
            box = await self.cluster.sandbox(name)
            body = _pod(f"stray-{self.made}", "nobody's")
            body["metadata"]["ownerReferences"] = [_owner("Sandbox", box, "agents.x-k8s.io/v1beta1")]
            await self.cluster.api.create(PODS, body, "default")

        self.do(forge, pause)

    # The kubelet, the collector, and what goes wrong

    @rule(name=NAMES, pause=PAUSES)
    def run_the_pod(self, name: str, pause: float) -> None:
        self.do(lambda: self.cluster.start(name, pause=0.0), pause)

    @rule(name=NAMES, phase=st.sampled_from(["Failed", "Succeeded"]), pause=PAUSES)
    def end_the_pod(self, name: str, phase: str, pause: float) -> None:
        self.do(lambda: self.cluster.report(name, phase=phase, reason="Evicted"), pause)

    @rule(pause=PAUSES)
    def collect(self, pause: float) -> None:
        self.do(self.collected, pause)

    async def collected(self) -> None:
        """Pods on their way out go, and what belonged to sandboxes that are gone."""
        uids = {box.metadata.uid for box in (await self.cluster.api.list(SANDBOXES, "default")).items}
        for resource in (PODS, SERVICES, PERSISTENT_VOLUME_CLAIMS):
            for obj in (await self.cluster.api.list(resource, "default")).items:  # type: ignore[misc]
                owner = obj.metadata.controller
                ownerless = owner is not None and owner.kind == "Sandbox" and owner.uid not in uids
                if obj.metadata.leaving or ownerless:
                    await self.cluster.api.delete(resource, obj.metadata.name, "default", grace=0)  # type: ignore[misc]

    @rule(call=CALLS, error=ERRORS, lost=st.booleans())
    def fail(self, call: str, error: type[SandpoolError], lost: bool) -> None:
        """The controller's next call of that kind fails, or its answer is lost."""

        async def refuse() -> None:
            raise error("no")

        self.arm(call, refuse, late=lost)

    @rule(call=CALLS, name=NAMES, what=st.sampled_from(sorted(EDITS)))
    def edit_meanwhile(self, call: str, name: str, what: str) -> None:
        async def meanwhile() -> None:
            try:
                await self.cluster.edit(name, **EDITS[what])
                await asyncio.sleep(0.001)
            except ApiError:
                pass

        self.arm(call, meanwhile, late=False)

    def arm(self, call: str, action: Action, *, late: bool) -> None:
        async def hook(verb: str, plural: str) -> None:
            armed = self.armed.pop(f"{verb} {plural}", None)
            if armed is not None:
                await armed()

        self.armed = {call: action}
        flaky = self.cluster.flaky
        flaky.before, flaky.after = (nothing, hook) if late else (hook, nothing)

    # The end

    def teardown(self) -> None:
        if not hasattr(self, "cluster"):
            return
        try:
            self.run(self.calm())
        finally:
            self.run(self.stack.aclose())
            self.loop.close()

    async def calm(self) -> None:
        self.armed.clear()
        for _ in range(4):
            await self.collected()
            await self.cluster.settle(3600)
        await self.never_two_pods()
        assert all(_guarded(made.patch) for made in self.cluster.counted.calls if made.patch is not None)
        boxes = (await self.cluster.api.list(SANDBOXES, "default")).items
        await self.nothing_is_left(boxes)
        for box in boxes:
            await self.facts(box)
        self.cluster.counted.clear()
        for box in boxes:
            self.cluster.controller.loop.wake(box.metadata.key, "test")
        await self.cluster.settle(3600)
        assert self.cluster.writes == [], self.told(boxes)
        await self.heal(boxes)

    async def heal(self, boxes: tuple[Sandbox, ...]) -> None:
        """What somebody breaks by hand is mended at once, not by chance."""
        lost = merge_patch({"metadata": {"labels": {SANDBOX_UID: None}}})
        for pod in (await self.cluster.api.list(PODS, "default")).items:
            await self.cluster.api.patch(PODS, pod.metadata.name, lost, "default")
        await self.cluster.settle(5)
        for box in boxes:
            await self.facts(box)
        for resource in (PODS, SERVICES):
            for obj in (await self.cluster.api.list(resource, "default")).items:  # type: ignore[misc]
                await self.cluster.api.delete(resource, obj.metadata.name, "default", grace=0)  # type: ignore[misc]
            await self.cluster.settle(60)
            await self.nothing_is_left((await self.cluster.api.list(SANDBOXES, "default")).items)

    async def nothing_is_left(self, boxes: tuple[Sandbox, ...]) -> None:
        """A fresh look at the server finds nothing to do and nothing to tell."""
        caches: list[Cache[Any]] = [Cache(kind) for kind in KINDS]
        for cache in caches:
            page = await self.cluster.api.list(cache.resource, "default")
            cache.replace(page.items, page.revision)
        observer, options, now = Observer(Caches(*caches)), Options(), self.cluster.clock.now()
        for box in boxes:
            view = observer.view(Key("default", box.metadata.name))
            assert view is not None
            plan = plan_sandbox(view, options, now)
            assert plan.steps == (), self.told(boxes)
            trouble = Trouble(plan.refused)
            status = expired_status(box, trouble, now) if plan.expired else status_of(view, trouble, options, now)
            assert status_patch(box, status) is None, (box.status, status, self.told(boxes))

    async def facts(self, box: Sandbox) -> None:
        """The same, said without the words of the controller."""
        meta, spec, conditions = box.metadata, box.spec, {one.type: one for one in box.status.conditions}
        pods = [pod for pod in (await self.cluster.api.list(PODS, "default")).items if _held(pod, box)]
        service = await self.cluster.there(SERVICES, meta.name)
        ours = service is not None and _held(service, box)
        if conditions["Ready"].reason == "SandboxExpired":
            assert (pods, ours) == ([], False)
            return
        assert not (spec.service is False and ours)
        assert not (spec.suspended and pods)
        assert box.status.service == (meta.name if ours else "")
        if len(pods) > 1:
            return  # not ours to choose from, unless one has the expected name
        if spec.service and not spec.suspended and "Healthy" not in conditions:
            assert service.spec.selector == {SANDBOX_NAME_HASH: name_hash(meta.name), SANDBOX_UID: meta.uid}
        for pod in pods:
            template = spec.pod_template.metadata
            wanted = {**(template.labels if template else {}), SANDBOX_UID: meta.uid}
            assert wanted.items() <= pod.metadata.labels.items()
            assert (WARM_POOL in pod.metadata.labels) is (WARM_POOL in meta.labels)
            assert pod.metadata.annotations.get(TRACE_CONTEXT) == meta.annotations.get(TRACE_CONTEXT)
            assert meta.annotations.get(POD_NAME, meta.name) == pod.metadata.name
            made_from = pod.metadata.annotations.get(POD_SPEC_HASH)
            outdated = made_from not in (None, pod_spec_hash(spec.pod_template.spec))
            assert ("PodUpToDate" in conditions) is outdated

    def told(self, boxes: tuple[Sandbox, ...]) -> str:
        return "\n".join(self.cluster.told(box.metadata.name) for box in boxes)


def _guarded(patch: Patch) -> bool:
    """Whether a patch can only change the object that it was made for. A uid in a merge patch of a status would be ignored."""
    body: Any = patch.body
    if patch.type is PatchType.JSON:
        return body[0]["op"] == "test" and body[0]["path"] == "/metadata/uid"
    return bool(body["metadata"]["uid"]) and "status" not in body


def _held(obj: Any, box: Sandbox) -> bool:
    owner = obj.metadata.controller
    return owner is not None and owner.uid == box.metadata.uid


def _owner(kind: str, obj: Any, version: str = EXTENSIONS) -> dict[str, Any]:
    meta = obj.metadata
    return {"apiVersion": version, "kind": kind, "name": meta.name, "uid": meta.uid, "controller": True}


def _pod(name: str, how: str) -> dict[str, Any]:
    metadata: dict[str, Any] = {"name": name, "labels": {ADOPTABLE: "true"} if how == "adoptable" else {}}
    if how == "foreign":
        metadata["ownerReferences"] = [FOREIGN]
    return {"metadata": metadata, "spec": msgspec.json.decode(msgspec.json.encode(SPEC))}


SandboxMachine.TestCase.settings = settings(max_examples=25, stateful_step_count=30, deadline=None)
TestSandboxController = SandboxMachine.TestCase


@pytest.mark.long
def test_sandbox_controller_deep() -> None:
    deep = settings(max_examples=1500, stateful_step_count=50, deadline=None)
    run_state_machine_as_test(SandboxMachine, settings=deep)
